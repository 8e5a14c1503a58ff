"""`offramp policy`: see, change and undo the live policy of a running server."""
