"""Is the answer right on this device: equal to the CPU's, and the same in every batch?"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from loadtest.bench.chain import each_segment
from loadtest.bench.engine_driver import driving, row_of
from loadtest.bench.gpu.device_variant import DeviceVariant
from loadtest.bench.inputs import padded, random_texts
from serve.bundle.manifest import Precision
from serve.engine.row import Row
from serve.engine.runner import ModelRunner
from serve.rules import ConfidenceRule, EntropyRule, ExitRule, LayerRule, NeverRule
from serve.rules.replay import Recording

Logits = NDArray[np.float32]

# A logit's distance from the fp32 segments on the CPU. fp32 without TF32 differs in the order of
# sums; fp16 keeps eleven bits, and each layer rounds several times.
TOLERANCE: dict[Precision, float] = {"fp32": 1e-3, "fp16": 5e-2, "int8": 0.0}
ODD_SHAPES = ((1, 1), (1, 7), (3, 33), (5, 128), (17, 96), (33, 8))
SENTENCES = (
    "It works.",
    "Not bad at all for a first novel.",
    "The second half drags, but the ending makes up for it.",
    "Delivery took three weeks and the box was open when it came.",
    "I have read the instructions three times and still do not know where the battery goes.",
    "Shares fell by four per cent after the company lowered its forecast for the year.",
    "The plot is thin, the jokes are old, and still I had a wonderful evening, which I cannot "
    "say of the film before it, nor of the one before that.",
    "Terrible!",
)
# Rows in flight: fewer than there are, so that new rows meet deeper ones.
_IN_FLIGHT = 64


class Finding(NamedTuple):
    """One check of one variant."""

    check: str
    precision: Precision
    max_error: float  # largest absolute difference of a logit; NaN if any is
    agreement: float  # share of answers that are the same
    answers: int  # how many were compared
    tolerance: float  # bound on `max_error`
    worst: str  # where `max_error` was

    @property
    def passed(self) -> bool:
        """Whether every logit is close enough and every answer the same; NaN is not close."""
        return self.max_error <= self.tolerance and self.agreement == 1.0


def check_parity(variant: DeviceVariant, expected: ModelRunner) -> Finding:
    """Compare every exit with the CPU's at odd shapes, with rows dropped between segments.

    Labels are compared where the model's two best logits are further apart than the tolerance.
    """
    tolerance = TOLERANCE[variant.precision]
    errors: dict[str, float] = {}
    same: list[bool] = []
    for case, found, wanted in _walks(variant, expected):
        errors[case] = float(np.abs(found - wanted).max())
        same += _same_labels(found, wanted, tolerance)
    return _finding("parity with the CPU", variant, errors, same)


def check_invariance(variant: DeviceVariant, num_rows: int) -> Finding:
    """Compare answers of the engine, given in batches, with those of each row alone.

    An exit may differ only where a signal is within the tolerance of the threshold.
    """
    generator = np.random.default_rng(1)
    tolerance = TOLERANCE[variant.precision]
    rows = [_random_row(variant, generator, tag) for tag in range(num_rows)]
    errors: dict[str, float] = {}
    same: list[bool] = []
    with driving(variant.chain, variant.shape) as driver:
        driver.run(rows, _IN_FLIGHT)
        answers = driver.answers()
    for row, answer in answers:
        heads = all_heads(variant, row)
        case = f"row {row.tag}, {row.num_tokens} tokens, exit {answer.exit_index + 1}"
        errors[case] = float(np.abs(answer.logits - heads[answer.exit_index]).max())
        earliest, latest = _exits_around(variant, row.rule.rule, heads, tolerance)
        same.append(earliest <= answer.exit_index <= latest)
    return _finding("batch invariance", variant, errors, same)


def check_texts(variant: DeviceVariant, expected: ModelRunner) -> Finding:
    """Compare every exit with the CPU's on sentences, all in one batch."""
    tokenizer = Tokenizer.from_file(str(variant.bundle.tokenizer_path))
    texts = [tokenizer.encode(text).ids[: variant.max_tokens] for text in SENTENCES]
    inputs = padded(texts, variant.shape.pad_id)
    tolerance = TOLERANCE[variant.precision]
    errors: dict[str, float] = {}
    same: list[bool] = []
    steps = zip(each_segment(variant.chain, inputs), each_segment(expected, inputs), strict=True)
    for place, (found, wanted) in enumerate(steps, 1):
        errors[f"exit {place}"] = float(np.abs(found.logits - wanted.logits).max())
        same += _same_labels(found.logits, wanted.logits, tolerance)
    return _finding("sentences", variant, errors, same)


def all_heads(variant: DeviceVariant, row: Row) -> Logits:
    """Return (exits, labels): each exit's logits for a row that is alone in its batch."""
    inputs = padded([row.input_ids], variant.shape.pad_id)
    return np.stack([step.logits[0] for step in each_segment(variant.chain, inputs)])


def _same_labels(found: Logits, wanted: Logits, tolerance: float) -> list[bool]:
    """Compare the labels of rows whose two best logits are not too close."""
    best = np.sort(wanted, axis=1)
    clear = best[:, -1] - best[:, -2] > 2 * tolerance
    same: list[bool] = (found.argmax(axis=1) == wanted.argmax(axis=1))[clear].tolist()
    return same


def _finding(
    check: str, variant: DeviceVariant, errors: Mapping[str, float], same: Sequence[bool]
) -> Finding:
    # NaN counts as larger than any number.
    worst = max(errors, key=lambda case: (math.isnan(errors[case]), errors[case]))
    agreement = float(np.mean(same)) if same else 1.0
    tolerance = TOLERANCE[variant.precision]
    return Finding(check, variant.precision, errors[worst], agreement, len(same), tolerance, worst)


def _walks(variant: DeviceVariant, expected: ModelRunner) -> Iterator[tuple[str, Logits, Logits]]:
    """Yield a name, and (rows, labels) of the device and of the reference, exit after exit."""
    generator = np.random.default_rng(0)
    for num_rows, num_tokens in ODD_SHAPES:
        longest = min(num_tokens, variant.max_tokens)
        lengths = generator.integers(1, longest + 1, num_rows)
        lengths[0] = longest
        inputs = padded(random_texts(lengths, variant.vocabulary, seed=num_rows), 0)
        mask = inputs.attention_mask
        found, wanted = variant.chain.start(*inputs), expected.start(*inputs)
        yield f"{num_rows} x {longest}, exit 1", found.logits, wanted.logits
        for index in range(1, len(expected)):
            keep = generator.permutation(len(mask))[: max(1, len(mask) - 1)]
            mask = mask[keep]
            mask = np.ascontiguousarray(mask[:, : mask.sum(axis=1).max()])
            found = variant.chain.advance(index, found.hidden, keep, mask)
            wanted = expected.advance(index, wanted.hidden, keep, mask)
            case = f"{len(mask)} x {mask.shape[1]} of {num_rows} x {longest}, exit {index + 1}"
            yield case, found.logits, wanted.logits


def _random_row(variant: DeviceVariant, generator: np.random.Generator, tag: int) -> Row:
    length = int(generator.integers(1, min(64, variant.max_tokens) + 1))
    ids = generator.integers(0, variant.vocabulary, length)
    layers = variant.bundle.manifest.exit_layers
    most = float(np.log(len(variant.bundle.manifest.labels)))
    rules: list[ExitRule] = [
        EntropyRule(threshold=float(generator.uniform(0, most))),
        ConfidenceRule(threshold=float(generator.uniform())),
        LayerRule(layer=int(generator.choice(layers))),
        NeverRule(),
    ]
    return row_of(variant.shape, ids, rules[tag % len(rules)], tag)


def _exits_around(
    variant: DeviceVariant, rule: ExitRule, heads: Logits, tolerance: float
) -> tuple[int, int]:
    """Return the first and the last exit that the rule may take if logits move by `tolerance`.

    If logits move by t, confidence moves by at most t and entropy by at most 2 t ln(labels) + t.
    """
    shape = variant.shape
    threshold = getattr(rule, "threshold", None)
    around = [rule]
    if threshold is not None:
        entropy = isinstance(rule, EntropyRule)
        top = float(np.log(heads.shape[1])) if entropy else 1.0
        reach = tolerance * (1 + 2 * top) if entropy else tolerance / min(1, *shape.temperatures)
        moved = (max(0.0, threshold - reach), min(top, threshold + reach))
        around += [rule.model_copy(update={"threshold": t}) for t in moved]
    recording = Recording(shape.traits, shape.temperatures, heads[:, None])
    taken = [int(recording.taken(r).exits[0]) for r in around]
    return min(taken), max(taken)
