"""The exit rules, one file per rule or family of rules: JSON fields and arithmetic."""
