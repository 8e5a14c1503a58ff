"""Multi-exit models in PyTorch: definition, training, evaluation, import, the shipped zoo."""
