"""Another classifier as the reference: what every rule, full depth too, differs from."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from models.data.label_ids import label_order
from models.errors import UnusableData
from models.quality.calibrate import CalibrationJob, calibrate
from models.quality.certify import REFERENCE_EPSILONS
from serve.policy.ladder import OF_REFERENCE, Rung
from serve.rules.signals import decisions, probabilities
from serve.rules.traits import Task
from tests.models.conftest import offramp
from tests.models.quality.conftest import (
    MakeBundle,
    MakeData,
    command,
    ladder_of,
    recording_of,
    run,
    texts_in,
)
from tests.serve.support.task_bundles import LABELS


def answers(folder: Path, data: Path, every: int, scored: bool = False) -> Path:
    """Write what the bundle says of the data at full depth; every so many labels are another."""
    texts = list(dict.fromkeys(texts_in(data)))
    recording = recording_of(folder, texts)
    found, labels = recording.logits[-1], recording.traits.labels
    found[::every] = np.roll(found[::every], 1, axis=1)
    names = [labels[i] for i in decisions("single_label", found)]
    rows = [
        {"text": text, "label": name}
        | ({"scores": dict(zip(labels[::-1], p[::-1].tolist(), strict=True))} if scored else {})
        for text, name, p in zip(texts, names, probabilities("single_label", found), strict=True)
    ]
    path = data.with_name("answers.jsonl")
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows[::-1]))
    return path


def without(rung: Rung) -> Rung:
    """Return what a rung says of full depth."""
    kept = tuple(c for c in rung.certificates if c.loss not in OF_REFERENCE)
    return rung.model_copy(update={"reference_disagreement": None, "certificates": kept})


def losses(rung: Rung) -> list[str]:
    return [c.loss for c in rung.certificates]


@pytest.mark.parametrize("task", LABELS)
def test_a_bundle_as_its_own_reference_differs_as_from_full_depth(
    make_bundle: MakeBundle, make_data: MakeData, task: Task
) -> None:
    folder, data = make_bundle(task), make_data(task)
    (plain,), _ = run(folder, data)
    (ladder,), _ = run(folder, data, reference=folder)
    assert set(plain.rungs) <= set(map(without, ladder.rungs))
    assert [r.reference_disagreement for r in ladder.rungs] == [
        r.disagreement for r in ladder.rungs
    ]
    never = ladder.rungs[0].certificate("reference")
    assert never
    assert never.observed == 0
    assert ladder.reference
    assert ladder.reference.name == f"{folder.name}"
    for rung in ladder.rungs:
        scores, mapped = rung.certificate("reference_score"), rung.certificate("score")
        assert (scores is None) or task != "regression"
        assert not scores or not mapped or scores.observed == mapped.observed
    assert ladder_of(folder) == ladder


@pytest.mark.parametrize("scored", [True, False])
def test_full_depth_is_certified_from_a_file_of_answers_that_differs(
    make_bundle: MakeBundle, make_data: MakeData, scored: bool
) -> None:
    folder, data = make_bundle(), make_data(num_texts=600)
    (ladder,), _ = run(folder, data, reference=answers(folder, data, 20, scored))
    never, fastest = ladder.rungs[0], ladder.rungs[-1]
    assert never.reference_disagreement == pytest.approx(0.05, abs=0.02)
    assert losses(never) == ["reference", "reference_score"][: 1 + scored]
    found = never.certificate("reference")
    assert found
    assert found.epsilon > found.observed == never.reference_disagreement
    assert found.n == ladder.num_certifying
    assert fastest.reference_disagreement != fastest.disagreement


def test_what_full_depth_is_not_certified_for_no_rule_is(
    make_bundle: MakeBundle, make_data: MakeData
) -> None:
    folder, data = make_bundle(), make_data()
    (ladder,), _ = run(folder, data, reference=answers(folder, data, 2))
    assert ladder.rungs[0].reference_disagreement == pytest.approx(0.5, abs=0.1)
    assert not any(rung.certificate("reference") for rung in ladder.rungs)


def test_the_screen_says_up_to_which_bound_not_even_full_depth_is_certified(
    make_bundle: MakeBundle, make_data: MakeData
) -> None:
    folder, data = make_bundle(), make_data(num_texts=600)
    reference = answers(folder, data, 20)
    lines = reference.read_text().splitlines()
    text, label = json.loads(lines[0])["text"], json.loads(lines[0])["label"]
    another = next(each for each in LABELS["single_label"] if each != label)
    reference.write_text("\n".join([*lines, json.dumps({"text": text, "label": another})]))
    result = command(folder, data, "--reference", reference)
    assert result.exit_code == 0, result.output
    assert "texts with several answers, of which the first counts: 1" in result.stderr
    table = result.stdout.split("other answer than answers.jsonl's")[1].splitlines()
    refused, *others = [line.split() for line in table if line.split()[1:2] == ["%"]]
    never = ladder_of(folder).rungs[0].certificate("reference")
    assert never
    assert refused[2] == "none:"
    place = REFERENCE_EPSILONS.index(never.epsilon)
    assert float(refused[0]) == pytest.approx(100 * REFERENCE_EPSILONS[place - 1])
    assert float(others[0][0]) == pytest.approx(100 * never.epsilon)
    assert refused[-2] == f"{100 * never.observed:.2f}"
    for line in others:  # each can be asked for, and becomes just this rule
        found = offramp(
            "recommend", folder, "--max-disagreement", f"{line[0]}%", "--reference", reference
        )
        assert " ".join(line[2:-3]) in found.stdout


def test_the_fastest_rule_of_every_bound_from_a_reference_is_a_rung(
    make_bundle: MakeBundle, make_data: MakeData
) -> None:
    folder, data = make_bundle(), make_data(num_texts=600)
    job = CalibrationJob(folder, (data,), reference=answers(folder, data, 30))
    (found,) = calibrate(job, Console(quiet=True))
    fastest = {}
    for rung in found.ladder.rungs:
        if own := rung.certificate("reference"):
            fastest[own.epsilon] = found.ladder.mean_layers(rung)
    for (loss, epsilon), end in found.certified.ends.items():
        if loss == "reference" and end > 0:
            layers = min(each for bound, each in fastest.items() if bound <= epsilon)
            assert layers == pytest.approx(found.certified.tried.mean_layers[end - 1])


def test_the_same_texts_again_keep_what_is_known_of_the_reference(
    make_bundle: MakeBundle, make_data: MakeData
) -> None:
    folder, data = make_bundle(), make_data()
    (before,), _ = run(folder, data, reference=folder)
    run(folder, data)
    assert ladder_of(folder) == before
    run(folder, make_data(name="others"))
    other = ladder_of(folder)
    assert other.reference is None
    assert not any(set(losses(rung)) & set(OF_REFERENCE) for rung in other.rungs)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            {"text": "no such text", "label": "neutral"},
            "answers to .* texts are missing, the first",
        ),
        ({"text": "the", "label": "angry"}, "unknown label 'angry'"),
        ({"label": "neutral"}, "each answer stands beside its text"),
        ({"text": "the", "label": "neutral", "scores": "0.9"}, "expected a JSON object"),
        ({"text": "the", "label": "neutral", "scores": {"glad": 1}}, "the model's labels are"),
        (
            {
                "text": "the",
                "label": "neutral",
                "scores": dict(negative=0.9, neutral=0.1, positive=0),
            },
            "the label is not what the scores say",
        ),
    ],
)
def test_a_file_that_does_not_fit_is_refused_before_anything_runs(
    make_bundle: MakeBundle, make_data: MakeData, tmp_path: Path, row: dict[str, Any], said: str
) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(json.dumps(row))
    with pytest.raises(UnusableData, match=said):
        run(make_bundle(), make_data(num_texts=60), reference=path)


def test_a_reference_of_another_task_or_with_other_labels_is_refused(
    make_bundle: MakeBundle, make_data: MakeData
) -> None:
    with pytest.raises(UnusableData, match="its task is multi_label, not single_label"):
        run(make_bundle(), make_data(num_texts=60), reference=make_bundle("multi_label"))


def test_labels_are_matched_by_name_and_names_that_say_nothing_by_place() -> None:
    assert label_order(["b", "A", "c"], ["a", "B", "c"]) == [1, 0, 2]
    assert label_order(["a b", "d\u2019e"], ["d'e", "a_b"]) == [1, 0]
    assert label_order(["LABEL_0", "LABEL_1"], ["no", "yes"]) == [0, 1]
    assert label_order(["yes", "no"], ["0", "1"]) == [0, 1]
    assert label_order(["a", "A"], ["A", "a"]) == [1, 0]
    assert label_order(["2", "0", "1"], ["0", "1", "2"]) == [1, 2, 0]
    assert label_order(["LABEL_2", "LABEL_0", "LABEL_1"], ["a", "b", "c"]) == [1, 2, 0]
    assert label_order(["LABEL_2", "LABEL_1"], ["a", "b"]) == [1, 0]
    assert label_order(["a", "b", "c"], ["LABEL_2", "LABEL_0", "LABEL_1"]) == [2, 0, 1]
    assert label_order(["a", "b"], ["a", "c"]) is None
    assert label_order(["a"], ["a", "b"]) is None
