"""vLLM's `/classify`."""
