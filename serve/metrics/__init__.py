"""Every Prometheus metric, and the page that merges all replicas."""
