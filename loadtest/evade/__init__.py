"""Searching texts that a rule answers otherwise than full depth: `python -m loadtest.evade`."""
