"""The benchmarks' error."""

from serve.errors import OfframpError


class BenchFailed(OfframpError):
    """The benchmark's model cannot be made, or the engine gave a wrong answer."""

    code = "bench_failed"
