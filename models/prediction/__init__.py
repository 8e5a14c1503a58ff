"""`offramp predict`: answers to the texts of a file, by the server's own engine."""
