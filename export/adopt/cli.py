"""The command `offramp adopt`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from models.data.notes import notes_to
from models.data.options import TextColumns, named_columns


def adopt(
    classifier: Annotated[
        Path,
        typer.Argument(
            help="Folder of a fine-tuned classifier, as save_pretrained writes it.",
            exists=True,
            file_okay=False,
        ),
    ],
    texts: Annotated[
        list[Path],
        typer.Option(
            help="Texts like those that clients will send, which the classifier was not trained "
            "on: .txt with one per line, .tsv, .csv or .jsonl; labels are not read. Several times.",
            exists=True,
            dir_okay=False,
        ),
    ],
    out: Annotated[Path, typer.Option(help="Bundle folder to write.", file_okay=False)],
    max_disagreement: Annotated[
        str,
        typer.Option(
            help="Share of texts that may get another answer than the classifier's, 1% or 0.01; it "
            "becomes the bundle's default."
        ),
    ] = "1%",
    text_columns: TextColumns = None,
) -> None:
    """Let a fine-tuned classifier's easy texts leave early, with a certified bound on the cost.

    Gives it exits, exports it, certifies rules, and ends with what they save. After Ctrl-C, the
    same command continues.
    """
    from export.adopt.adopt import CALIBRATING, Adoption, make_default, print_plan, run, steps
    from models.quality.cli import recommend, share, target_of
    from serve.errors import TargetOutOfReach

    most = share("--max-disagreement", max_disagreement)
    target = target_of({"max_disagreement": most, "from": "reference"}, flagged=False)
    job = Adoption(classifier, tuple(texts), out, named_columns(text_columns, None))
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    with notes_to(console):
        planned = steps(job, console)
        print_plan(job, planned, console)
        try:
            run(job, planned, console)
        except KeyboardInterrupt:
            console.print("stopped; to continue, run the same command again")
            raise
    try:
        recommend(
            out,
            max_disagreement=max_disagreement,
            reference=classifier,
            texts=job.work / CALIBRATING,
        )
    except TargetOutOfReach as error:
        raise TargetOutOfReach(
            f"{error}. {out} is whole: the same command with a larger --max-disagreement shows at "
            "once what that allows, and more texts may certify less"
        ) from None
    make_default(job, target)
    console.print("requests that ask for nothing else get this rule")
    console.print(f"to serve it: `offramp serve {out} --standalone`")
    console.print(
        f"{job.work} holds the model with exits and the parts of the texts. Serving does not need "
        "it; this command does when it is repeated, and so does an export for another machine."
    )
