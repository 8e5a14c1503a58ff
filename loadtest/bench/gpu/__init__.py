"""`python -m loadtest.bench.gpu`: is a bundle right on a GPU host, and does leaving pay there.

Needs onnxruntime-gpu, cuda-bindings, numpy, tokenizers and pydantic; neither Ray nor a web server.
Torch, transformers and onnx are used where they are. docs/gpu.md says more.
"""
