"""A model cut into one graph per exit."""
