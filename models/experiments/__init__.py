"""Experiments: named training runs, and the page `docs/reproductions.md` that is made of them.

`python -m models.experiments` trains what is missing, one run after the other, and writes the page.
A `Run` names data, encoder and options of `offramp train`; `ensure` trains it once. A `Section`
names its runs and writes its part of the page from a `Context`.
"""
