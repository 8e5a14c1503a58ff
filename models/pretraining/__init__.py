"""`offramp pretrain`: teaches every exit to read, from texts without labels."""
