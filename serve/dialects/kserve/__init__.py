"""KServe's protocol V1."""
