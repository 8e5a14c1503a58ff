"""What ELUE's score and picture need of reports: those of `offramp evaluate` and `elue report`."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from models.data.notes import note
from models.elue.score import Place
from models.errors import TrainingFailed
from models.quality.costs import MFLOPS
from models.quality.points import STATIC
from models.quality.report.evaluate import FIGURES
from models.quality.scores import ACCURACY_F1, CORRELATIONS, MCC
from serve.rules.traits import listed

# Tasks whose tables show another metric than accuracy, or than both correlations of numbers.
_METRICS = {"mrpc": ACCURACY_F1, "qqp": ACCURACY_F1, "cola": MCC}


class Measured(NamedTuple):
    """A model on the data of a task.

    Attributes:
        name: the model's, as the report says it.
        task: such as `sst2`.
        metric: ELUE's of the task.
        families: by kind of rule, (MFLOPs, metric x 100) of each rule; `static` has the exits.
        judged_by: the kind of rule that the report judges the model by; `static` of one exit.
        parameters: None where they are not known.
        data: the hash of the texts; None where the report does not say it.
    """

    name: str
    task: str
    metric: str
    families: Mapping[str, list[Place]]
    judged_by: str
    parameters: int | None
    data: str | None

    def points(self, family: str | None = None) -> list[Place]:
        """Return the points of one kind of rule; None for the one to judge by.

        Raises:
            TrainingFailed: the report has no such rules.
        """
        wanted = family or self.judged_by
        if wanted not in self.families:
            raise TrainingFailed(
                f"--family {wanted}: {self.name} has {listed(self.families)} in its report"
            )
        return self.families[wanted]

    def reference(self, references: Sequence["Measured"]) -> list[Place]:
        """Return the points of static models on this model's task.

        Raises:
            TrainingFailed: there are none.
        """
        own = [each for each in references if each.task == self.task]
        if not own:
            known = listed(sorted({each.task for each in references}))
            raise TrainingFailed(
                f"{self.name} is measured on {self.task}, the reference on {known}: give reports "
                "of the same task, or say by --task which one all reports are of"
            )
        if self.data and any(each.data not in (None, self.data) for each in own):
            note(f"{self.name} and the reference were measured on other texts of {self.task}")
        return [place for each in own for place in each.points(STATIC)]


def read_reports(paths: Iterable[Path], task: str | None = None) -> list[Measured]:
    """Read models from reports.

    Args:
        paths: of `report.json`, or of the folders with it.
        task: that all of them are of; None for the name of the folder that the data lies in.

    Raises:
        TrainingFailed: a file is no such report, or holds no MFLOPs.
    """
    found = [_model(path, model, task) for path in paths for model in _models(path)]
    if not found:
        raise TrainingFailed(f"{listed(map(str, paths))}: the reports are of no model")
    return found


def report_file(path: Path) -> Path:
    """Return a report's file, which may be named by its folder."""
    return path / FIGURES if path.is_dir() else path


def _models(path: Path) -> list[dict[str, Any]]:
    try:
        models = json.loads(report_file(path).read_text("utf-8"))["models"]
        if all("name" in dict(model) for model in list(models)):
            return list(models)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    raise TrainingFailed(
        f"{path}: no report; `offramp evaluate` writes {FIGURES}, give that file or its folder"
    )


def _model(path: Path, model: dict[str, Any], task: str | None) -> Measured:
    try:
        data, rules = model["data"], model.get("rules", {})
        # `sst2` for `SST-2`.
        name = task or data.get("task") or data["name"].partition("/")[0]
        name = re.sub(r"[^a-z0-9]", "", name.lower())
        metric = _METRICS.get(name, CORRELATIONS if model["task"] == "regression" else "accuracy")
        families, judged_by = rules.get("families"), str(rules.get("family_to_judge_by") or STATIC)
        if families is None:  # of a single exit there are no rules
            points = [{"metrics": exit_, "costs": exit_["costs"]} for exit_ in model["exits"]]
            families, judged_by = {STATIC: points}, STATIC
        return Measured(
            name=model["name"],
            task=name,
            metric=metric,
            families={
                f: [_place(p, metric) for p in points] for f, points in families.items() if points
            },
            judged_by=judged_by,
            parameters=int(model.get("parameters") or 0) or None,
            data=data.get("sha256"),
        )
    except KeyError as error:
        raise TrainingFailed(f"{path}: {_missing(str(error.args[0]), model['name'])}") from None
    except (TypeError, ValueError, AttributeError, OverflowError):
        raise TrainingFailed(f"{path}: no report of `offramp evaluate`") from None


def _place(point: dict[str, Any], metric: str) -> Place:
    place = float(point["costs"][MFLOPS]), 100 * float(point["metrics"][metric])
    if not all(map(math.isfinite, place)):
        raise ValueError(f"{place} has what is no number")
    return place


def _missing(field: str, name: str) -> str:
    if field == MFLOPS:
        return (
            f"the operations of {name} are not known; evaluate the bundle again with --model and "
            "the folder that it was exported from"
        )
    return f"{name} has no {field} in the report; evaluate it again with this version"
