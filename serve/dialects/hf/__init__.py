"""Hugging Face's Inference API."""
