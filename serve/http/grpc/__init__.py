"""The Open Inference Protocol v2 over gRPC, with health checks and reflection."""
