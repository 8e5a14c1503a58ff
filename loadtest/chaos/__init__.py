"""What clients see while parts of a Ray Serve deployment die: `python -m loadtest.chaos BUNDLE`."""
