"""Labelled files, and the batches that training and evaluation run."""
