"""What `offramp predict` writes: a table, JSON lines, or ELUE's test file."""

import json
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

from models.errors import TrainingFailed
from models.prediction.predictor import Prediction
from serve.rules.traits import Traits

FormatName = Literal["tsv", "jsonl", "elue"]

TABLE = "index\tanswer\tscore\texit_layer\tmflops"
ELUE = "index\tpred\tmodules"
# How files of each format begin.
BEGINNINGS = (TABLE, ELUE, '{"index":')

# From a text's place in the file and what it was answered to a line.
Line: TypeAlias = Callable[[int, Prediction], str]


class Format(NamedTuple):
    """How predictions are written.

    Attributes:
        header: the first line; empty for none.
        line: writes one prediction.
    """

    header: str
    line: Line


def format_of(name: FormatName, traits: Traits, width: int) -> Format:
    """Return a format for a model.

    Args:
        name: of the format.
        traits: of the model.
        width: of its hidden states.

    Raises:
        TrainingFailed: the format has no place for such answers.
    """
    if name == "jsonl":
        return Format("", _json_line)
    if name == "tsv":
        return Format(TABLE, _table_row)
    if traits.task not in ("single_label", "regression"):
        raise TrainingFailed(
            f"--format elue is for one label or one number; this model's task is {traits.task}: "
            "use tsv or jsonl"
        )
    ids = {label: str(i) for i, label in enumerate(traits.labels)}
    return Format(ELUE, lambda index, found: _elue_row(index, found, ids, width))


def modules(found: Prediction, width: int) -> str:
    """Return the modules that ran, in order, each with the shape of its input."""
    n, parts = found.num_tokens, [f"({found.num_tokens}),emb"]
    done = 0
    for exit_layer in found.exits_asked:
        parts += [f"({n},{width}),layer_{i}" for i in range(done + 1, exit_layer + 1)]
        parts.append(f"({width}),exit_{exit_layer}")
        done = exit_layer
    return "; ".join(parts)


def _table_row(index: int, found: Prediction) -> str:
    result = found.result
    score: object = result.get("score", "")
    if "labels" in result:
        answer, scores = "|".join(result["labels"]), result["scores"]
        score = "|".join(str(scores[label]) for label in result["labels"])
    elif "entities" in result:
        answer = json.dumps(result["entities"], ensure_ascii=False)
    else:
        answer = str(result.get("label", result.get("value")))
    mflops = "" if found.mflops is None else f"{found.mflops:.3f}"
    cells = (index, " ".join(answer.split()), score, found.exit_layer, mflops)
    return "\t".join(map(str, cells))


def _json_line(index: int, found: Prediction) -> str:
    mflops = None if found.mflops is None else round(found.mflops, 3)
    fields = {"index": index, **found.result, "exit_layer": found.exit_layer, "mflops": mflops}
    return json.dumps(fields, ensure_ascii=False)


def _elue_row(index: int, found: Prediction, ids: dict[str, str], width: int) -> str:
    result = found.result
    pred = ids[result["label"]] if "label" in result else result["value"]
    return f"{index}\t{pred}\t{modules(found, width)}"
