"""The engine's bars on a model of BERT-base's size."""
