"""Where installations before November 2026 look for `offramp calibrate` and `recommend`."""
