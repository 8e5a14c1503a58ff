"""What a bundle's graphs must have, and whether they answer as the model does."""
