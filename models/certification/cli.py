"""The commands `offramp calibrate` and `offramp recommend`."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from models.errors import TrainingFailed

_FOLDER = {"exists": True, "file_okay": False}
_FILE = {"exists": True, "dir_okay": False}

_Bundle = Annotated[Path, typer.Argument(help="Bundle folder.", **_FOLDER)]
_Exits = Annotated[
    str | None,
    typer.Option("--active-exits", help="Exit layers in use, e.g. 2,4,6. Default: all."),
]
_Device = Annotated[
    Literal["auto", "cpu", "cuda"], typer.Option(help="auto is CUDA where it can be had.")
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
    tuning: Annotated[
        Path | None,
        typer.Option(
            help="Texts that choose the rules, so that all of --data certify. Default: a share of "
            "--data.",
            **_FILE,
        ),
    ] = None,
    unlabelled: Annotated[
        bool,
        typer.Option("--unlabelled", help="Ignore labels: certify agreement with full depth only."),
    ] = False,
    delta: Annotated[
        float, typer.Option(min=1e-9, max=0.5, help="Probability that a bound does not hold.")
    ] = 0.05,
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
) -> None:
    """Certify what leaving early may cost, and write the certified rules into the bundle.

    Some texts choose the rules, others certify them. What the bundle serves changes when the
    server next starts.
    """
    from models.certification.calibrate import CalibrationJob
    from models.certification.calibrate import calibrate as run
    from models.certification.summary import headline, lacking, promises

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
    )
    console = Console(highlight=False, soft_wrap=True)
    for found in run(job, Console(stderr=True)):
        console.print(headline(found))
        for table in promises(found):
            console.print(table)
        for sentence in lacking(found):
            console.print(sentence)
        console.print()


def _layers(exits: str | None) -> tuple[int, ...] | None:
    try:
        return tuple(int(part) for part in exits.split(",")) if exits else None
    except ValueError:
        raise TrainingFailed(f"--active-exits {exits!r}: must be layers such as 2,4,6") from None
