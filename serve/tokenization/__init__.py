"""Texts to token ids, and token labels back to spans of text."""
