"""Is the answer right on this device? Against the CPU, and whatever the company of a row."""

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from loadtest.bench.gpu.loaded_bundle import Logits, Subject, all_heads, random_ids
from serve.bundle.manifest import Precision
from serve.bundle.recording import exits_taken
from serve.engine.core import ModelShape
from serve.engine.engine import Engine
from serve.engine.row import Answer, Outcome, Row
from serve.errors import OfframpError
from serve.rules import ConfidenceRule, EntropyRule, ExitRule, LayerRule, NeverRule
from serve.runtime.cpu_runner import CpuRunner

# A logit's distance from the fp32 segments on the CPU. fp32 without TF32 differs in the order of
# sums; fp16 keeps eleven bits, and each layer rounds several times.
TOLERANCE: dict[Precision, float] = {"fp32": 1e-3, "fp16": 5e-2, "int8": 0.0}
ODD_SHAPES = ((1, 1), (1, 7), (3, 33), (5, 128), (17, 96), (33, 8))
_PATIENCE_S = 120.0


class Finding(NamedTuple):
    """One check of one variant.

    Attributes:
        check: its name.
        precision: the variant.
        max_error: largest absolute difference of a logit; NaN if any is.
        agreement: share of answers that are the same.
        answers: how many were compared.
        tolerance: what `max_error` may be.
        worst: where `max_error` was.
    """

    check: str
    precision: Precision
    max_error: float
    agreement: float
    answers: int
    tolerance: float
    worst: str

    @property
    def passed(self) -> bool:
        """Whether every logit is close enough and every answer the same; NaN is not close."""
        return self.max_error <= self.tolerance and self.agreement == 1.0


def check_parity(subject: Subject, expected: CpuRunner) -> Finding:
    """Compare every exit at odd shapes, with rows dropped and reordered between segments.

    Labels are compared where the model's own two best logits are further apart than the tolerance.
    """
    tolerance = TOLERANCE[subject.precision]
    errors, same = {}, []
    for case, found, wanted in _walks(subject, expected):
        errors[case] = float(np.abs(found - wanted).max())
        best = np.sort(wanted, axis=1)
        clear = best[:, -1] - best[:, -2] > 2 * tolerance
        same.extend((found.argmax(axis=1) == wanted.argmax(axis=1))[clear])
    return Finding(
        "parity with the CPU",
        subject.precision,
        _largest(errors)[1],
        float(np.mean(same)) if same else 1.0,
        len(same),
        tolerance,
        _largest(errors)[0],
    )


def check_invariance(subject: Subject, num_rows: int) -> Finding:
    """Compare answers given in company, through the engine, with those given alone.

    An exit may differ only where a signal lies within the tolerance of the threshold.
    """
    generator = np.random.default_rng(1)
    tolerance = TOLERANCE[subject.precision]
    rows = [_random_row(subject, generator, tag) for tag in range(num_rows)]
    answers = answers_of(subject, rows)
    errors, same = {}, []
    for row in rows:
        heads, answer = all_heads(subject.chain, row.input_ids), answers[row.tag]
        case = f"row {row.tag}, {row.num_tokens} tokens, exit {answer.exit_index + 1}"
        errors[case] = float(np.abs(answer.logits - heads[answer.exit_index]).max())
        earliest, latest = _exits_around(subject, row.rule, heads, tolerance)
        same.append(earliest <= answer.exit_index <= latest)
    return Finding(
        "company does not matter",
        subject.precision,
        _largest(errors)[1],
        float(np.mean(same)),
        len(same),
        tolerance,
        _largest(errors)[0],
    )


def _largest(errors: Mapping[str, float]) -> tuple[str, float]:
    """Return where the largest error is, and the error; NaN is larger than any number."""
    return max(errors.items(), key=lambda entry: (math.isnan(entry[1]), entry[1]))


def answers_of(subject: Subject, rows: Sequence[Row]) -> dict[int, Answer]:
    """Return the answers by tag, from a real engine on the subject's segments."""
    results: dict[int, Answer | OfframpError] = {}
    done = threading.Event()

    def deliver(outcomes: Sequence[Outcome]) -> None:
        results.update({o.row.tag: o.result for o in outcomes})
        if len(results) == len(rows):
            done.set()

    engine = Engine(subject.chain, shape_of(subject), deliver)
    engine.start()
    # In lots, so that rows meet others that are deeper.
    for lot in np.array_split(np.arange(len(rows)), 8):
        engine.submit([rows[i] for i in lot])
    done.wait(_PATIENCE_S)
    engine.stop(_PATIENCE_S)
    answers: dict[int, Answer] = {}
    for tag, result in results.items():
        if not isinstance(result, Answer):
            raise result
        answers[tag] = result
    return answers


def shape_of(subject: Subject) -> ModelShape:
    """Return what the engine must know of the model."""
    manifest = subject.bundle.manifest
    temperatures = tuple(e.temperature for e in manifest.exits)
    return ModelShape(manifest.traits, temperatures, manifest.pad_id)


def _walks(subject: Subject, expected: CpuRunner) -> Iterator[tuple[str, Logits, Logits]]:
    """Yield a name, and (rows, labels) of the device and of the reference, exit after exit."""
    generator = np.random.default_rng(0)
    for num_rows, num_tokens in ODD_SHAPES:
        longest = min(num_tokens, subject.max_tokens)
        lengths = generator.integers(1, longest + 1, num_rows)
        lengths[0] = longest
        ids, mask = random_ids(generator, subject.vocabulary, lengths)
        types = np.zeros_like(ids)
        found, wanted = subject.chain.start(ids, mask, types), expected.start(ids, mask, types)
        yield f"{num_rows} x {longest}, exit 1", found.logits, wanted.logits
        for index in range(1, len(expected)):
            keep = generator.permutation(len(mask))[: max(1, len(mask) - 1)]
            mask = mask[keep]
            mask = np.ascontiguousarray(mask[:, : mask.sum(axis=1).max()])
            found = subject.chain.advance(index, found.hidden, keep, mask)
            wanted = expected.advance(index, wanted.hidden, keep, mask)
            case = f"{len(mask)} x {mask.shape[1]} of {num_rows} x {longest}, exit {index + 1}"
            yield case, found.logits, wanted.logits


def _random_row(subject: Subject, generator: np.random.Generator, tag: int) -> Row:
    length = int(generator.integers(1, min(64, subject.max_tokens) + 1))
    ids = generator.integers(0, subject.vocabulary, length)
    layers = subject.bundle.manifest.exit_layers
    most = float(np.log(len(subject.bundle.manifest.labels)))
    rules: list[ExitRule] = [
        EntropyRule(threshold=float(generator.uniform(0, most))),
        ConfidenceRule(threshold=float(generator.uniform())),
        LayerRule(layer=int(generator.choice(layers))),
        NeverRule(),
    ]
    return Row(ids, np.zeros_like(ids), rules[tag % len(rules)], tag=tag)


def _exits_around(
    subject: Subject, rule: ExitRule, heads: Logits, tolerance: float
) -> tuple[int, int]:
    """Return the first and the last exit that the rule may take if logits move this far.

    A logit's move by t moves confidence by at most t and entropy by at most 2 t ln(labels) + t.
    """
    shape = shape_of(subject)
    threshold = getattr(rule, "threshold", None)
    around = [rule]
    if threshold is not None:
        entropy = isinstance(rule, EntropyRule)
        top = float(np.log(heads.shape[1])) if entropy else 1.0
        reach = tolerance * (1 + 2 * top) if entropy else tolerance / min(1, *shape.temperatures)
        moved = (max(0.0, threshold - reach), min(top, threshold + reach))
        around += [rule.model_copy(update={"threshold": t}) for t in moved]
    taken = [
        int(exits_taken(heads[:, None], r, shape.traits, shape.temperatures)[0]) for r in around
    ]
    return min(taken), max(taken)
