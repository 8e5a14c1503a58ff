"""Is a bundle right on a GPU, and does leaving early pay there? See docs/gpu.md."""
