"""`offramp bench-engine`: the engine's bars on a model of BERT-base's size."""
