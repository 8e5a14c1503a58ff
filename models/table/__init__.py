"""The table: a linear model over token n-grams, taught by a model's own answers, as its layer 0."""
