"""The commands `offramp calibrate` and `offramp recommend`."""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from models.data.notes import notes_to
from models.data.options import LabelColumn, TextColumns, named_columns
from models.errors import TrainingFailed
from serve.validation import read_share

if TYPE_CHECKING:
    from serve.policy.target import Target

_FOLDER = {"exists": True, "file_okay": False}
_FILE = {"exists": True, "dir_okay": False}

# That run under load.
_MOST_TEXTS = 2000

_Bundle = Annotated[Path, typer.Argument(help="Bundle folder.", **_FOLDER)]
_Exits = Annotated[
    str | None,
    typer.Option("--active-exits", help="Exit layers in use, e.g. 2,4,6. Default: all."),
]
_Device = Annotated[
    Literal["auto", "cpu", "cuda"], typer.Option(help="auto is CUDA where it can be had.")
]


_Flag = Annotated[
    list[str] | None,
    typer.Option(
        help="LABEL=THRESHOLD, several times: the flag whose decisions are certified, as in "
        "requests.",
    ),
]


_Reference = Annotated[
    Path | None,
    typer.Option(
        help="Your own classifier, to compare with: a folder that `offramp inspect` reads, a "
        "bundle, or a file of its answers.",
        exists=True,
    ),
]


def calibrate(
    bundle: _Bundle,
    data: Annotated[
        list[Path],
        typer.Option(
            help="Texts that neither trained nor chose the model; several times. Labelled: .tsv, "
            ".csv, .jsonl or .conll. With --unlabelled also .txt, a text per line.",
            **_FILE,
        ),
    ],
    text_columns: TextColumns = None,
    label_column: LabelColumn = None,
    tuning: Annotated[
        Path | None,
        typer.Option(
            help="Texts that choose the rules, so that all of --data certify. Default: a share of "
            "--data.",
            **_FILE,
        ),
    ] = None,
    table: Annotated[
        list[Path] | None,
        typer.Option(
            help="Texts that first teach the bundle a table, by which texts may leave before the "
            "first layer; several times. Labels are not read, and others must certify.",
            **_FILE,
        ),
    ] = None,
    small: Annotated[
        Path | None,
        typer.Option(
            help="Bundle of a small model with the same labels, which is first put in front: texts "
            "that it is sure of never reach this one.",
            **_FOLDER,
        ),
    ] = None,
    unlabelled: Annotated[
        bool,
        typer.Option("--unlabelled", help="Ignore labels: certify agreement with full depth only."),
    ] = False,
    delta: Annotated[
        float, typer.Option(min=1e-9, max=0.5, help="Probability that a bound does not hold.")
    ] = 0.05,
    repeats: Annotated[
        Literal["count", "once"],
        typer.Option(
            help="count: --data is a draw of traffic, and a text that comes often counts as often. "
            "once: it is a collection, and texts with the same tokens count once."
        ),
    ] = "count",
    tuning_share: Annotated[
        float, typer.Option(min=0.01, max=0.99, help="Share of --data that chooses the rules.")
    ] = 1 / 3,
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Of a regression: values further from full depth's disagree. Default: a tenth of "
            "the standard deviation of full depth's values.",
        ),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(help="Variants, comma separated. Default: all that can run here."),
    ] = None,
    flag: _Flag = None,
    reference: _Reference = None,
    active_exits: _Exits = None,
    device: _Device = "auto",
    also: Annotated[
        Path | None,
        typer.Option(
            help="Model folder that gets the certificates too: export takes them into bundles "
            "with the same weights.",
            **_FOLDER,
        ),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show every precision, and every loss.")
    ] = False,
) -> None:
    """Certify what leaving early may cost, and write the certified rules into the bundle.

    Some texts choose the rules, others certify them. What the bundle serves changes when the
    server next starts.
    """
    from models.cascade.add import add_small
    from models.quality.calibrate import Calibrated, CalibrationJob
    from models.quality.calibrate import calibrate as run
    from models.quality.summary import next_command, outcome, screen, served
    from models.quality.undo import undone_without
    from models.table.add import add_table

    job = CalibrationJob(
        bundle=bundle,
        data=tuple(data),
        tuning=tuning,
        labelled=not unlabelled,
        delta=delta,
        tuning_share=tuning_share,
        tolerance=tolerance,
        precisions=tuple(p.strip() for p in precision.split(",")) if precision else None,
        exits=_layers(active_exits),
        device=device,
        model=also,
        columns=named_columns(text_columns, label_column),
        flag=thresholds_of(flag),
        reference=reference,
        repeats=repeats,
    )
    console = Console(highlight=False, soft_wrap=True)
    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    done: list[Calibrated] = []
    try:
        undo = undone_without(done, bundle) if small or table else nullcontext()
        with notes_to(errors), undo:
            if small:
                add_small(bundle, small)
            if table:
                add_table(bundle, table, errors, job.columns)
            for found in run(job, errors):
                done.append(found)
                if verbose:
                    console.print(*screen(found), "", sep="\n")
    except KeyboardInterrupt:
        certified = ", ".join(each.ladder.precision for each in done) or "nothing"
        errors.print(
            f"stopped: certified so far: {certified}; the rest is as it was; the same command does "
            "all again"
        )
        raise
    found = served(job, done)
    if not verbose:
        console.print(*outcome(found), sep="\n")
    console.print(next_command(job, found))


def thresholds_of(options: list[str] | None) -> dict[str, float] | None:
    """Return a flag from `injection=0.8`."""
    flag: dict[str, float] = {}
    for option in options or ():
        label, _, written = option.rpartition("=")
        if label in flag:
            raise TrainingFailed(f"--flag {option!r}: {label} has a threshold already")
        try:
            flag[label] = float(written)
        except ValueError:
            label = ""
        if not label or not 0 <= flag[label] <= 1:
            raise TrainingFailed(
                f"--flag {option!r}: must be a label and a threshold from 0 to 1, such as "
                "injection=0.8"
            )
    return flag or None


def _layers(exits: str | None) -> tuple[int, ...] | None:
    from serve.bundle.loader import parse_layers

    return None if exits is None else parse_layers("--active-exits", exits)


def recommend(
    bundle: _Bundle,
    max_disagreement: Annotated[
        str | None,
        typer.Option(
            help="Share of other answers than at full depth, or than --reference: 1% or 0.01."
        ),
    ] = None,
    max_loss: Annotated[
        str | None, typer.Option(help="What the metric may lose, against full depth: 1% or 0.01.")
    ] = None,
    reference: _Reference = None,
    flag: _Flag = None,
    max_missed: Annotated[
        str | None,
        typer.Option(help="With --flag: of the texts that full depth flags, the share missed."),
    ] = None,
    max_false_alarms: Annotated[
        str | None,
        typer.Option(help="With --flag: of the other texts, the share that is flagged early."),
    ] = None,
    speedup: Annotated[
        float | None, typer.Option(min=1, help="How much faster than full depth, in the mean.")
    ] = None,
    max_layers: Annotated[
        float | None, typer.Option(min=1, help="Mean number of layers per text.")
    ] = None,
    max_ms: Annotated[float | None, typer.Option(help="Mean milliseconds of a lone text.")] = None,
    certified: Annotated[
        bool | None,
        typer.Option(help="Only certified rules. Default: with a bound on quality, yes."),
    ] = None,
    precision: Annotated[
        Literal["auto", "fp32", "int8", "fp16"], typer.Option(help="auto: as the server chooses.")
    ] = "auto",
    active_exits: _Exits = None,
    device: _Device = "auto",
    texts: Annotated[
        Path | None,
        typer.Option(
            help="Texts like those of your clients: compares the rule with the whole model under "
            "load.",
            **_FILE,
        ),
    ] = None,
) -> None:
    """Show what a target becomes on this machine: the rule, what it saves and may cost."""
    from rich.table import Table

    from models.data.unlabelled import read_unlabelled
    from models.quality.recommend import check_reference
    from models.quality.recommend import recommend as run
    from models.quality.summary import flag_overview
    from serve.bundle.loader import load_bundle
    from serve.runtime.placement import place

    wanted = {
        "max_disagreement": share("--max-disagreement", max_disagreement),
        "max_loss": share("--max-loss", max_loss),
        "max_missed": share("--max-missed", max_missed),
        "max_false_alarms": share("--max-false-alarms", max_false_alarms),
        "speedup": speedup,
        "max_layers": max_layers,
        "max_ms": max_ms,
        "certified": certified,
        "from": "reference" if reference else None,
    }
    thresholds, bounds = thresholds_of(flag), {k: v for k, v in wanted.items() if v is not None}
    loaded = load_bundle(bundle)
    loaded = loaded.presenting(_layers(active_exits) or loaded.manifest.exit_layers)
    placement = place(loaded, device, precision)
    console = Console(highlight=False)
    if thresholds and not bounds:
        console.print(flag_overview(loaded, placement.precision, thresholds))
        return
    target = target_of(bounds, bool(thresholds))
    with notes_to(Console(stderr=True, highlight=False, soft_wrap=True)):
        if reference:
            check_reference(loaded, placement.precision, reference)
        sample = read_unlabelled(texts)[:_MOST_TEXTS] if texts else []
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    table.add_row("bundle", f"{loaded.name}, {placement.precision} on {placement.device}")
    for heading, sentence in run(loaded, placement, target, thresholds, sample):
        table.add_row(heading, sentence)
    console.print(table)


def target_of(bounds: dict[str, Any], flagged: bool) -> "Target":
    """Return the target of the options; a flag goes with bounds on its decisions."""
    from pydantic import ValidationError

    from serve.policy.target import Target
    from serve.validation import explain

    try:
        target = Target.model_validate(bounds)
    except ValidationError as error:
        raise TrainingFailed(explain(error)) from None
    if target.decides != flagged:
        raise TrainingFailed(
            "--flag goes with --max-missed and --max-false-alarms: they are about its decisions"
        )
    return target


def share(option: str, written: str | None) -> float | None:
    """Return 0.01 for `1%` and for `0.01`."""
    if written is None:
        return None
    try:
        return read_share(written)
    except ValueError:
        raise TrainingFailed(f"{option} {written!r}: must be a share such as 1% or 0.01") from None
