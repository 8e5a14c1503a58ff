"""What the ONNX Runtime sessions of a process have in common: settings and an arena."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import onnxruntime as ort
from numpy.typing import NDArray

from serve.runtime.hardware import has_vnni

# Takes names of outputs, inputs by name, and run options.
Run: TypeAlias = Callable[[Sequence[str], Mapping[str, NDArray[Any]], Any], list[NDArray[Any]]]
# For every run. Without any it takes 4 to 23 microseconds longer, caches cold: each makes its own.
RUN_OPTIONS = ort.RunOptions()
# How long the threads of a model's layers spin: longer than what is done between two of them; much
# longer would cost a core.
AWAKE_S = 0.0005


def quick_run(session: ort.InferenceSession) -> Run:
    """Return what runs a session, without what ONNX Runtime checks in Python before each run.

    That takes 1 to 3 microseconds, and 15 to 30 right after a model has run: its inputs' names are
    fetched anew, one by one. Without it a missing input is C++'s error.

    Args:
        session: to be kept as long as it is run. Of ONNX Runtime 1.31, to which we are pinned:
            what is within it is no promise.
    """
    run: Run = session._sess.run
    return run


def session_options(num_threads: int, awake_s: float = 0.0) -> ort.SessionOptions:
    """Return options under which many sessions share the cores and the memory in peace.

    Each session has its own threads, which spin while the session runs and sleep otherwise. (By
    default they would spin on, against those of the next segment.)

    Args:
        num_threads: of the session's own pool, the caller's thread included.
        awake_s: how long they spin after a run: until the next, where the session is the only one
            that runs. A wake-up costs 0.1 ms and more.
    """
    _share_memory()
    options = plain_options(num_threads)
    options.inter_op_num_threads = 1
    if awake_s:
        awake_us = f"{1e6 * awake_s:.0f}"
        options.add_session_config_entry("session.intra_op.spin_duration_us", awake_us)
    else:
        options.add_session_config_entry("session.force_spinning_stop", "1")
    options.add_session_config_entry("session.use_env_allocators", "1")
    # Patterns would be kept for many shapes of batches; `serve.runtime.sessions` has its own use
    # for them.
    options.enable_mem_pattern = False
    return options


def plain_options(num_threads: int) -> ort.SessionOptions:
    """Return ONNX Runtime's own options, with int8 kernels that are exact on any processor.

    Args:
        num_threads: of the session's own pool, the caller's thread included.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = num_threads
    if not has_vnni():
        # Without VNNI the fast int8 kernels saturate; this chooses exact, slower ones.
        options.add_session_config_entry("session.x64quantprecision", "1")
    options.log_severity_level = 3
    return options


@cache
def _share_memory() -> None:
    """Let the process's sessions work in one arena.

    Alone, each keeps an arena sized for its largest batch: after 32 x 128 tokens the six
    segments of a MiniLM held 1.2 GB, together 0.3, and warm memory is up to 8 % faster.
    """
    arena, default = ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, ort.OrtMemType.DEFAULT
    ort.create_and_register_allocator(ort.OrtMemoryInfo("Cpu", arena, 0, default), None)
