"""The HTTP app; knows nothing of Ray."""
