"""Answers in time under more load than a server can take: `python -m loadtest.overload BUNDLE`."""
