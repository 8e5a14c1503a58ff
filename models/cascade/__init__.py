"""A small model in front of a large one."""
