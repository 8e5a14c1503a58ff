"""From texts to token ids, and from labelled tokens to entities."""
