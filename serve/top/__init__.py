"""`offramp top`: the console's live figures in a terminal."""
