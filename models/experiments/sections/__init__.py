"""Sections of `docs/reproductions.md`: what papers report, measured again on our own models.

A section has a file for its paper: the published figures, what is measured, and the text around
it. What several share is in `tried.py` (rules tried on a recording), `sampled.py` (a figure with
its interval), `models.py` (the trained models that they are about) and `turns.py` (times).
"""
