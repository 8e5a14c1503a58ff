"""Figures as Markdown tables: the quality of each exit, the cost and saving of each rule."""

from collections.abc import Iterable

from serve.bundle.calibration import OperatingPoint, VariantCalibration
from serve.rules import ExitRule

_TITLES = {
    "f1": "F1",
    "macro_f1": "macro-F1",
    "micro_f1": "micro-F1",
    "entity_f1": "entity F1",
    "pearson": "Pearson",
    "spearman": "Spearman",
}
_CORRELATIONS = {"pearson", "spearman"}
# How a rule's signal compares with its threshold.
_COMPARISONS = {"entropy": "<", "normalized_entropy": "<", "confidence": ">=", "learned": "<"}


def title(metric: str) -> str:
    """Return a metric's display name."""
    return _TITLES.get(metric, metric)


def unit(metric: str) -> str:
    """Return the unit of a metric that `in_hundredths` has formatted."""
    return "x 100" if metric in _CORRELATIONS else "%"


def in_hundredths(value: float) -> str:
    """Format a share or a correlation in hundredths."""
    return f"{100 * value:.2f}"


def render_figures(calibration: VariantCalibration) -> str:
    """Return Markdown: the data set, a table of exits, a table of exit rules."""
    data = calibration.data
    metrics = calibration.exits[0].measured
    return "\n".join(
        [
            f"Measured on `{data.name}` ({data.rows} rows, sha256 `{data.sha256[:12]}...`).",
            "",
            *_exits(calibration, metrics),
            "",
            *_rules(calibration, metrics),
        ]
    )


def _exits(calibration: VariantCalibration, metrics: tuple[str, ...]) -> list[str]:
    return [
        _cells(["exit layer", *map(_header, metrics)]),
        _cells(["---:"] * (1 + len(metrics))),
        *(
            _cells([str(e.layer), *(in_hundredths(e.value(m)) for m in metrics)])
            for e in calibration.exits
        ),
    ]


def _rules(calibration: VariantCalibration, metrics: tuple[str, ...]) -> list[str]:
    # A regression has no agreement: two exits' values are never exactly equal.
    has_agreement = all(p.agreement is not None for p in calibration.operating_points)
    agreement = ["agreement with the last exit %"] if has_agreement else []
    header = ["exit rule", *map(_header, metrics), *agreement, "mean exit layer"]
    return [
        _cells(header),
        _cells(["---", *["---:"] * (len(header) - 1)]),
        *(_rule(point, metrics) for point in calibration.operating_points),
    ]


def _rule(point: OperatingPoint, metrics: tuple[str, ...]) -> str:
    return _cells(
        [
            describe_rule(point.rule),
            *(in_hundredths(point.value(metric)) for metric in metrics),
            *([] if point.agreement is None else [in_hundredths(point.agreement)]),
            f"{point.mean_exit_layer:.2f}",
        ]
    )


def describe_rule(rule: ExitRule) -> str:
    """Return a rule as text, such as `entropy < 0.30` or `patience 2 tolerance 0.1`."""
    fields = rule.model_dump(exclude_none=True)
    name = fields.pop("rule")
    # The default of a field says nothing.
    fields = {key: value for key, value in fields.items() if value != _default(rule, key)}
    threshold = fields.get("threshold")
    if name in _COMPARISONS and isinstance(threshold, float):
        del fields["threshold"]
        name = f"{name} {_COMPARISONS[name]} {_rounded(threshold)}"
    elif name in fields:
        # The rules `patience` and `layer` have one number of the same name.
        name = f"{name} {fields.pop(name)}"
    return " ".join([name, *(f"{key} {value}" for key, value in fields.items())])


def _default(rule: ExitRule, field: str) -> object:
    return type(rule).model_fields[field].default


def _rounded(threshold: float) -> str:
    two_digits = f"{threshold:.2f}"
    return two_digits if float(two_digits) == threshold else str(threshold)


def _header(metric: str) -> str:
    return f"{title(metric)} {unit(metric)}"


def _cells(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
