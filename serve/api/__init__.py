"""The HTTP API over the served models; it knows nothing of Ray."""
