"""Measuring a multi-exit model: figures per exit, exit rules, calibration, model card."""
