"""Which stage of a request a stack of the event loop belongs to."""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, TypeAlias

# Of `module:function`, the innermost first.
Stack: TypeAlias = Sequence[str]


class Stage(StrEnum):
    """What the event loop does with a request, in order."""

    READ = "read"  # bytes to a request: HTTP, routing, JSON, schema
    CHECK = "check"  # keys, hosts, limits
    RESOLVE = "resolve"  # exit choice to a rule
    TOKENIZE = "tokenize"
    HAND_OVER = "hand over"  # rows to the engine, and outcomes back
    ANSWER = "answer"  # outcomes to JSON
    WRITE = "write"  # JSON to the socket
    RECORD = "record"  # metrics, log lines, request ids
    LOOP = "loop"  # what the event loop itself takes, and what is none of the others


# By package or module: the longest that fits the innermost frame decides. None is for what several
# stages use: the frame that called it decides.
STAGES: Final[Mapping[str, Stage | None]] = {
    "fastapi": Stage.READ,
    "starlette": Stage.READ,
    "starlette.concurrency": None,
    "starlette.datastructures": None,
    "starlette.responses": Stage.ANSWER,
    "uvicorn.protocols": Stage.READ,
    "serve.http": Stage.READ,
    "serve.http.guard": Stage.CHECK,
    "serve.access": Stage.CHECK,
    "serve.api": Stage.READ,
    "serve.api.access": Stage.CHECK,
    "serve.api.errors": Stage.ANSWER,
    "serve.api.exit_report": Stage.ANSWER,
    "serve.api.json_encoding": Stage.ANSWER,
    "serve.api.limits": Stage.CHECK,
    "serve.api.record": Stage.RECORD,
    "serve.api.scores": Stage.ANSWER,
    "serve.dialects": Stage.READ,
    "serve.dialects.v1.answer": Stage.ANSWER,
    "serve.dialects.v1.results": Stage.ANSWER,
    "serve.classifier": Stage.HAND_OVER,
    "serve.classifier.flagger": Stage.RESOLVE,
    "serve.classifier.windowed": Stage.RESOLVE,
    "serve.classifier.request_tokenizer": Stage.TOKENIZE,
    "serve.engine": Stage.HAND_OVER,
    "serve.logs": Stage.RECORD,
    "serve.metrics": Stage.RECORD,
    "serve.policy": Stage.RESOLVE,
    "serve.rules": Stage.RESOLVE,
    "serve.rules.signals": None,
    "serve.tokenization": Stage.TOKENIZE,
    "serve.tracing": Stage.RECORD,
}

# Functions of those that do another stage's work, with all that they call in the same one.
FUNCTIONS: Final[Mapping[tuple[str, str], Stage]] = {
    ("uvicorn.protocols", "send"): Stage.WRITE,
    ("serve.http", "send"): Stage.WRITE,
    ("serve.http", "write"): Stage.WRITE,
    ("serve.api.classification", "send"): Stage.WRITE,
    ("serve.dialects", "write"): Stage.ANSWER,
}

# What runs the event loop; the frames around it are the same in every stack.
_RUNNER = "asyncio.runners:"


def shares(counted: Mapping[Stack, int]) -> dict[Stage, float]:
    """Return each stage's share of the samples that were taken while the event loop ran."""
    found: Counter[Stage] = Counter()
    for stack, count in counted.items():
        around = (place for place, frame in enumerate(stack) if frame.startswith(_RUNNER))
        if (end := next(around, None)) is not None:
            found[stage_of(stack[:end])] += count
    total = found.total() or 1
    return {stage: found[stage] / total for stage in Stage}


def stage_of(stack: Stack) -> Stage:
    """Return the stage of the innermost frame that has one."""
    frames = [frame.split(":") for frame in stack]
    for place, (module, _) in enumerate(frames):
        package = _known(module)
        if package and (usual := STAGES[package]):
            callers = (FUNCTIONS.get((package, function)) for _, function in frames[place:])
            return next(filter(None, callers), usual)
    return Stage.LOOP


def _known(module: str) -> str | None:
    """Return the longest entry of `STAGES` that a module is, or lies in."""
    while module and module not in STAGES:
        module = module.rpartition(".")[0]
    return module or None
