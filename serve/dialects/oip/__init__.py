"""The Open Inference Protocol, version 2. `serve.http.grpc` calls it too."""
