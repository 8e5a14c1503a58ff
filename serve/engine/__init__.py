"""Continuous batching over exits: which rows run next, and which leave."""
