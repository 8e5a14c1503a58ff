"""Commands about a running server: `offramp policy`, `rollout`, `models` and `top`."""
