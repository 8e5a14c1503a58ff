"""Measuring a recorded model: scores, costs, rules tried, gains; and the model card.

`analyse` makes an `Analysis` of a model and a data file, from which the report is written.
"""
