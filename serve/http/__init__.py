"""The servers of one process, without Ray: uvicorn for HTTP, grpc.aio, and their sockets."""
