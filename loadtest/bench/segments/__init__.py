"""A bundle's segments beside the same model as one graph."""
