"""Multi-exit models in PyTorch: definition, training, evaluation, and the shipped zoo."""
