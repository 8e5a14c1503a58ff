"""HTTP without Ray: uvicorn, sockets, and one process that serves alone."""
