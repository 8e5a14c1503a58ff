"""The transformer encoders that can be given exits."""
