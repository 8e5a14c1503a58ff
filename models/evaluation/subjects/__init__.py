"""What `offramp evaluate` takes: bundles, and all checkpoints that can be exported."""
