"""What one runs on a bare GPU host: is the bundle right there, and how fast.

Needs onnxruntime-gpu, numpy, tokenizers and pydantic, and a bundle; neither Ray nor a web server.
"""
