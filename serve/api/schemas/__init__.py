"""The JSON that clients send and receive."""
