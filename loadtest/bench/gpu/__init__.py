"""`python -m loadtest.bench.gpu BUNDLE`: is a bundle right on a bare GPU host, and how fast.

Needs onnxruntime-gpu, numpy, tokenizers and pydantic, and a bundle; neither Ray nor a web server.
"""
