"""Figures as Markdown: how good each exit is, and what each rule costs and saves."""

from collections.abc import Iterable

from serve.bundle.calibration import OperatingPoint, VariantCalibration
from serve.policy.document import Policy
from serve.rules import EntropyRule

_TITLES = {
    "f1": "F1",
    "macro_f1": "macro-F1",
    "micro_f1": "micro-F1",
    "entity_f1": "entity F1",
    "pearson": "Pearson",
    "spearman": "Spearman",
}
_CORRELATIONS = {"pearson", "spearman"}


def title(metric: str) -> str:
    """Return what a metric is called."""
    return _TITLES.get(metric, metric)


def unit(metric: str) -> str:
    """Return the unit that `shown` gives a metric in."""
    return "x 100" if metric in _CORRELATIONS else "%"


def shown(value: float) -> str:
    """Return a share or a correlation in hundredths."""
    return f"{100 * value:.2f}"


def render_figures(calibration: VariantCalibration, policy: Policy) -> str:
    """Return Markdown: where the figures come from, those of each exit, the rules' table."""
    data = calibration.data
    metrics = calibration.exits[0].measured
    return "\n".join(
        [
            f"Measured on `{data.name}` ({data.rows} rows, sha256 `{data.sha256[:12]}...`).",
            "",
            *_exits(calibration, metrics),
            "",
            *_rules(calibration, metrics, policy),
        ]
    )


def _exits(calibration: VariantCalibration, metrics: tuple[str, ...]) -> list[str]:
    return [
        _cells(["exit layer", *map(_header, metrics)]),
        _cells(["---:"] * (1 + len(metrics))),
        *(_cells([str(e.layer), *(shown(e.value(m)) for m in metrics)]) for e in calibration.exits),
    ]


def _rules(calibration: VariantCalibration, metrics: tuple[str, ...], policy: Policy) -> list[str]:
    # Values are never quite the same: nothing agrees in a regression.
    agreeing = all(p.agreement is not None for p in calibration.operating_points)
    agreement = ["agreement with the last exit %"] if agreeing else []
    header = ["exit rule", *map(_header, metrics), *agreement, "mean exit layer"]
    return [
        _cells(header),
        _cells(["---", *["---:"] * (len(header) - 1)]),
        *(_rule(point, metrics, policy) for point in calibration.operating_points),
    ]


def _rule(point: OperatingPoint, metrics: tuple[str, ...], policy: Policy) -> str:
    names = [f"**{name}**" for name, rule in policy.profiles.items() if rule == point.rule]
    return _cells(
        [
            " ".join([_described(point), *names]),
            *(shown(point.value(metric)) for metric in metrics),
            *([] if point.agreement is None else [shown(point.agreement)]),
            f"{point.mean_exit_layer:.2f}",
        ]
    )


def _described(point: OperatingPoint) -> str:
    rule = point.rule
    fields = rule.model_dump(exclude_none=True)
    name, threshold = fields.pop("rule"), fields.get("threshold")
    if isinstance(rule, EntropyRule) and isinstance(threshold, float):
        del fields["threshold"]
        name = f"entropy < {_rounded(threshold)}"
    elif name in fields:
        # Patience and layer are numbers of that name.
        name = f"{name} {fields.pop(name)}"
    return " ".join([name, *(f"{key} {value}" for key, value in fields.items())])


def _rounded(threshold: float) -> str:
    two_digits = f"{threshold:.2f}"
    return two_digits if float(two_digits) == threshold else str(threshold)


def _header(metric: str) -> str:
    return f"{title(metric)} {unit(metric)}"


def _cells(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
