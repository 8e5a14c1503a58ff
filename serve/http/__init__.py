"""HTTP without Ray: uvicorn, sockets, and the server that is one process."""
