"""Experiments: named training runs, and the page `docs/reproductions.md` that is made of them."""
