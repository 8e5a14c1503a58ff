"""Transformer encoders under one interface: embeddings, then single layers."""
