"""The import path of the app in Ray Serve configs: `serve.app:build`.

The arguments of the app are the fields of `serve.config.ServerConfig`.
"""

from serve.cluster.deployment import build

__all__ = ["build"]
