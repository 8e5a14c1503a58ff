"""The only package that imports Ray: replicas, their policy store, a local cluster."""
