"""The report of `offramp evaluate`: a page, its pictures, and the same figures for programs.

`evaluate` runs the models and writes the folder, `contents` puts the page together from its parts.
A part is a function from an `Analysis` to a `Part`: a heading, what is shown, and its figures.
"""
