"""Triton's own HTTP client against a running server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput, InferResult
from tritonclient.utils import InferenceServerException

from serve.api.json_encoding import short
from tests.serve.support.live_server import LiveServer, serving_bundles
