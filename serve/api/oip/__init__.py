"""What REST and gRPC share of the Open Inference Protocol: tensors to requests, answers to tensors.

Nothing here knows HTTP or gRPC.
"""
