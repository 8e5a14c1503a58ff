"""`offramp adopt`: from a fine-tuned classifier and texts without labels to a certified bundle.

It runs what `train --recipe frozen --unlabelled`, `export`, `calibrate --reference` and `recommend`
run, on parts of the texts that it makes itself.
"""
