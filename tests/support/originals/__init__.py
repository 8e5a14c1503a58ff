"""The papers' systems, written down once more from their description, to hold Offramp against.

Batch size one, plain tensors, every layer in one loop with the exit test behind it, as the
originals are. Nothing here is shared with `models` or `serve`.
"""
