"""The int8 and fp16 variants."""
