"""The pictures of an evaluation, one file each."""
