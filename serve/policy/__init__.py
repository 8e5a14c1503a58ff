"""The operator's policy document and its live version."""
