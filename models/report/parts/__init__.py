"""The parts of an evaluation's report, one file each: its figures, its picture and its words.

A further part is a file with a function from an `Analysis` to a `Part`, and a line in
`models.report.evaluation`.
"""
