"""Offramp on Ray Serve."""
