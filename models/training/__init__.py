"""Training runs: recipes, losses, checkpoints."""
