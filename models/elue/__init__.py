"""The ELUE benchmark: scores against a static reference, its test files, and its picture."""
