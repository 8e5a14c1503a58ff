"""The servers of one process, without Ray: HTTP, grpc.aio, and their sockets."""
