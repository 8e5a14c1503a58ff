"""Why a benchmark stops."""

from serve.errors import OfframpError


class BenchFailed(OfframpError):
    """The model for the bench cannot be made, or the engine did not do what it was told."""

    code = "bench_failed"
