"""ONNX Runtime sessions: how they are opened and run, and the arena that they share."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import onnxruntime as ort
from numpy.typing import NDArray

from serve.errors import InvalidBundle
from serve.runtime.hardware import has_vnni

# Takes names of outputs, inputs by name, and run options.
Run: TypeAlias = Callable[[Sequence[str], Mapping[str, NDArray[Any]], Any], list[NDArray[Any]]]
# For every run. A run without options makes its own, which takes 4 to 23 microseconds.
RUN_OPTIONS = ort.RunOptions()
# Failures are raised with the same text; ONNX Runtime would print them to stderr as well.
RUN_OPTIONS.log_severity_level = 4
# How long a model's threads spin after a run: longer than what the engine does between two runs.
# Much longer would cost a core.
AWAKE_S = 0.0005


def open_session(path: Path, options: ort.SessionOptions) -> ort.InferenceSession:
    """Return a session on the CPU.

    Raises:
        InvalidBundle: ONNX Runtime cannot load the file.
    """
    try:
        return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's errors have no common type
        reason = str(error).splitlines()[0]
        raise InvalidBundle(f"ONNX Runtime cannot load {path}: {reason}") from error


def quick_run(session: ort.InferenceSession) -> Run:
    """Return the session's run without the checks that ONNX Runtime makes in Python.

    The checks take 1 to 3 microseconds, and 15 to 30 right after a model has run, because the
    names of the inputs are fetched one by one. Without the checks a missing input is an error of
    the C++ code.

    Args:
        session: must live as long as it is run. The attribute read here is private, and known of
            ONNX Runtime 1.31, to which the dependencies are pinned.
    """
    run: Run = session._sess.run
    return run


def session_options(num_threads: int, awake_s: float = 0.0) -> ort.SessionOptions:
    """Return options under which several sessions share the cores and the memory.

    Each session has its own threads, which spin while the session runs and sleep otherwise. With
    ONNX Runtime's defaults they would spin on, against the threads of the next session.

    Args:
        num_threads: size of the session's own pool, the caller's thread included.
        awake_s: how long the threads spin after a run. A wake-up costs 0.1 ms and more.
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
    # Memory patterns would be kept for every shape of a batch.
    options.enable_mem_pattern = False
    return options


def plain_options(num_threads: int) -> ort.SessionOptions:
    """Return ONNX Runtime's own options, with int8 kernels that are exact on any processor."""
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

    A session of its own arena keeps memory for its largest batch: after 32 x 128 tokens six
    sessions of a MiniLM held 1.2 GB, and 0.3 GB in one arena. Warm memory is up to 8 % faster.
    """
    arena, default = ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, ort.OrtMemType.DEFAULT
    ort.create_and_register_allocator(ort.OrtMemoryInfo("Cpu", arena, 0, default), None)


OpenSession: TypeAlias = Callable[[Path], ort.InferenceSession]


def _queued() -> ort.RunOptions:
    options = ort.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    return options


# ONNX Runtime returns once everything is queued on the stream.
QUEUED = _queued()


def run_queued(session: ort.InferenceSession, binding: ort.IOBinding) -> list[ort.OrtValue]:
    """Queue a run and return its outputs, which may not be computed yet.

    The binding is not used again, because the outputs are views into it.
    """
    session.run_with_iobinding(binding, QUEUED)
    # Otherwise hidden states would keep those of all segments before them alive.
    binding.clear_binding_inputs()
    values: list[ort.OrtValue] = binding.get_outputs()
    return values
