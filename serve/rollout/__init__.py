"""Guarded rollouts: what the arms have answered, and when a candidate goes on or back."""
