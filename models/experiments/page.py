"""The page that the sections are joined to."""

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from models.experiments.plan import missing_minutes
from models.experiments.section import Context, Section

_HEAD = """# Reproductions

What the papers on early exits report, tried again with Offramp's own training, rules and models.
`make reproductions` trains what is missing, goes on with what was stopped, and writes all sections
but the first, which is written by hand. The models are trained within minutes on two cores, so the
figures compare with each other. With a paper's they compare only in order and direction: encoders,
amounts of data and passes differ.

* `a ± b` is the mean of three seeds with its 95 % interval (Student's t). Brackets are 95 %
  intervals over texts, by the bootstrap. A difference is *shown* if its interval does not hold 0.
* Where no text changed, `0 of n` stands with the exact one-sided 95 % bound of the share that may.
* MRPC, RTE and STS-B are measured on their dev sets, SST-2 and AG News on dev and held-out texts.
  Dev sets have chosen the weights of the zoo's models (`sst2-mpnet` and so on).
* In tables of recipes texts leave by their entropy, and run half of the layers in the mean at
  *half depth*. *Layers at 1 %*: the threshold has at most 1 % other answers than full depth on one
  half of the texts; the other half is measured, and gets the next column's other answers. *Time* is
  the processor's, in units of `joint`'s."""

# What the tables show of the papers' claims: read from them and written by a person.
_BY_HAND = "claims"


def write_page(sections: Mapping[str, Section], chosen: Collection[str], context: Context) -> Path:
    """Write some sections anew, and keep the others as the page has them; return its path."""
    page = context.places.page
    before = page.read_text("utf-8") if page.is_file() else ""
    claims = _kept(before, _BY_HAND)
    parts = [_HEAD, *([_marked(_BY_HAND, claims)] if claims else [])]
    for name, section in sections.items():
        if name in chosen:
            text = _written(name, section, context)
        else:
            text = _kept(before, name) or _left_out(name, section)
        parts.append(_marked(name, text))
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n\n".join(parts) + "\n", "utf-8")
    return page


def _written(name: str, section: Section, context: Context) -> str:
    missing = "\n".join(_missing(name, section, context))
    there = any(map(context.finished, section.runs)) if section.partial else not missing
    body = [section.write(context)] if there else []
    return "\n\n".join([f"## {section.title}", *body, *([missing] if missing else [])])


def _left_out(name: str, section: Section) -> str:
    return f"## {section.title}\n\nNot written yet: `python -m models.experiments {name}` does it."


def _missing(name: str, section: Section, context: Context) -> Iterator[str]:
    """Yield a sentence for each kind of thing that is missing."""
    runs = [run for run in section.runs if not context.finished(run)]
    if runs:
        yield (
            f"{len(runs)} of {len(section.runs)} models are not trained yet: "
            f"`python -m models.experiments {name}` trains them in about "
            f"{missing_minutes(runs, context)} minutes."
        )
    for bundle in section.bundles:
        if not context.bundle(bundle).is_dir():
            yield f"The model `{bundle}` is not there: `make zoo MODEL={bundle}` makes it."


def _marked(name: str, text: str) -> str:
    return f"<!-- {name} -->\n\n{text.strip()}\n\n<!-- end of {name} -->"


def _kept(page: str, name: str) -> str | None:
    """Return a section as an earlier page has it."""
    found = re.search(rf"<!-- {name} -->\n(.*?)\n<!-- end of {name} -->", page, re.DOTALL)
    return found[1] if found else None
