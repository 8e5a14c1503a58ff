"""The parts of an evaluation's report, one file each: figures, and how they are shown."""
