"""The page: sections, each of which is written once all that it needs is there."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from models.experiments.context import Context
from models.experiments.run import BUDGETS, Run
from models.experiments.training import is_finished

_HEAD = """# Reproductions

What the papers on early exits report, tried again with Offramp's own training, rules and models.
Each model is trained within minutes to an hour on two cores. The figures compare with each other,
and with a paper's only in order and direction: encoders, amounts of data and passes differ.
`make reproductions` trains what is missing, goes on with what was stopped, and writes all sections
but the first, which is written by hand.

* `a ± b` is the mean of three seeds with its 95 % interval (Student's t). Brackets are 95 %
  intervals over texts, by the bootstrap. A difference is *shown* if its interval does not hold 0;
  of twenty differences, one is shown by chance.
* Where no text changed, `0 of n` stands with the exact one-sided 95 % bound of the share that may.
* SST-2 and AG News are measured on dev and held-out texts, the others on dev sets. Dev sets have
  chosen the weights of the zoo's models (`sst2-mpnet` and so on).
* In tables of recipes texts leave by their entropy, and run half of the layers in the mean at
  *half depth*. *Layers at 1 %*: the threshold has at most 1 % other answers than full depth on one
  half of the texts; the other half is measured, and gets the next column's other answers. *Time* is
  the processor's, in units of `joint`'s."""

# What the tables show of the papers' claims: read from them and written by a person.
_BY_HAND = "claims"


@dataclass(frozen=True)
class Section:
    """A section of the page.

    Attributes:
        title: its heading.
        about: what its tables show.
        write: yields tables and sentences.
        runs: that are trained for it, in this order; without one of them it is not written.
        models: of the zoo, that it tells of; it is written from those that are there.
        exported: whether it needs their bundles.
    """

    title: str
    about: str
    write: Callable[[Context], Iterable[str]]
    runs: tuple[Run, ...] = ()
    models: tuple[str, ...] = ()
    exported: bool = False

    def there(self, context: Context) -> list[str]:
        """Return the models that are there."""
        return [
            name
            for name in self.models
            if context.trained(name) and (context.exported(name) or not self.exported)
        ]


def with_starts(runs: Iterable[Run]) -> list[Run]:
    """Return the runs and those that they start from, each once, in the order of training."""
    return list(dict.fromkeys(each for run in runs for each in run.chain))


def missing_minutes(runs: Iterable[Run], context: Context) -> int:
    """Return about how many minutes the runs that are not finished take together."""
    missing = [run for run in with_starts(runs) if not is_finished(run, context)]
    return sum(BUDGETS[run.data].minutes[run.encoder] for run in missing)


def write_page(sections: Mapping[str, Section], chosen: Collection[str], context: Context) -> Path:
    """Write some sections anew, and keep the others as the page has them; return its path."""
    page = context.page
    before = page.read_text("utf-8") if page.is_file() else ""
    parts = {_BY_HAND: _kept(before, _BY_HAND)}
    for name, section in sections.items():
        if name in chosen:
            parts[name] = "\n\n".join(_blocks(name, section, context))
        else:
            parts[name] = _kept(before, name) or (
                f"## {section.title}\n\nNot written yet: `python -m models.experiments {name}` "
                "does it."
            )
    marked = [
        f"<!-- {name} -->\n\n{text.strip()}\n\n<!-- end of {name} -->"
        for name, text in parts.items()
        if text
    ]
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n\n".join([_HEAD, *marked]) + "\n", "utf-8")
    return page


def _blocks(name: str, section: Section, context: Context) -> Iterator[str]:
    """Yield a section's heading, what is there, and a sentence on what is missing."""
    yield f"## {section.title}"
    missing = [run for run in section.runs if not is_finished(run, context)]
    there = section.there(context)
    if not missing and (there or not section.models):
        yield section.about
        yield from section.write(context)
    if missing:
        yield (
            f"{len(missing)} of {len(section.runs)} models are not trained yet: "
            f"`python -m models.experiments {name}` trains them in about "
            f"{missing_minutes(missing, context)} minutes."
        )
    commands = [
        f"`make {'bundle' if context.trained(model) else 'zoo'} MODEL={model}`"
        for model in section.models
        if model not in there
    ]
    if commands:
        yield f"Not there yet: {', '.join(commands)}."


def _kept(page: str, name: str) -> str | None:
    """Return a section as an earlier page has it."""
    found = re.search(rf"<!-- {name} -->\n(.*?)\n<!-- end of {name} -->", page, re.DOTALL)
    return found[1] if found else None
