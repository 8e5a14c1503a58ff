"""The engine's bars: what early exit costs and saves on a BERT-base-sized random model."""
