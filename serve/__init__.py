"""Everything that runs in production; imports neither torch nor transformers."""
