"""Export: from a multi-exit model to the bundle that the server loads."""
