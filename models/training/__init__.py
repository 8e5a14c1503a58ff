"""Training: recipes, losses, the run and its checkpoints."""
