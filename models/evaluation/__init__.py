"""What a multi-exit model is worth, and the card that says so."""
