"""Our own format: `POST /v1/classify`."""
