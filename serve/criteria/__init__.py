"""The exit rules at work: whether rows may leave, and what they would leave with."""
