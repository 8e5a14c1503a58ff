"""The policy document and its live version."""
