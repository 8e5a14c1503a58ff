"""`offramp bench`: segments beside one graph."""
