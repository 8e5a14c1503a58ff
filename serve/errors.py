"""The errors that callers may see: one tree, each class with its HTTP status and a stable code.

A message says what was wrong, where, and what would be right. Any other exception reaches the
client as a 500 without detail, and the log in full.
"""

import asyncio
import os
from pathlib import Path
from typing import Final

# What ends a task or the process. Any other exception is an error of one request: also the panic of
# a library in Rust, which is no `Exception`.
STOPS: Final = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)


class OfframpError(Exception):
    """Base of all expected errors; a subclass has the status and code of its base, or its own."""

    status = 500
    code = "internal"

    def __init_subclass__(cls, status: int | None = None, code: str | None = None) -> None:
        cls.status, cls.code = status or cls.status, code or cls.code


class InvalidRequest(OfframpError, status=422, code="invalid_request"):
    """The request is well-formed JSON but asks for something impossible."""


class InvalidTensor(InvalidRequest, status=400, code="invalid_tensor"):
    """A tensor, or what goes with it, that is not as the Open Inference Protocol has it."""


class MalformedBody(OfframpError, status=400, code="malformed_body"):
    """The body is not well-formed JSON."""


class BadRequest(OfframpError, status=400, code="bad_request"):
    """What came is not well-formed HTTP/1.1."""


class RequestTimeout(OfframpError, status=408, code="request_timeout"):
    """The request came too slowly."""


class HeadTooLarge(OfframpError, status=431, code="head_too_large"):
    """The request line with the headers, or one line between chunks, exceeds the limit."""


class TargetTooLong(OfframpError, status=414, code="target_too_long"):
    """The target of the request, a path with its query, exceeds the limit."""


class InvalidRule(InvalidRequest, code="invalid_rule"):
    """An exit rule that contradicts itself or that the model cannot follow."""


class TargetOutOfReach(InvalidRule, code="target_out_of_reach"):
    """No rule keeps all bounds of a target; the message names the nearest that can be had."""


class UnknownProfile(InvalidRequest, code="unknown_profile"):
    """The request names a profile the live policy does not have."""


class NoFlag(InvalidRequest, code="no_flag"):
    """A guardrail asks, and neither the request nor its profile has a flag to decide by."""


class OverrideForbidden(OfframpError, status=403, code="override_forbidden"):
    """The live policy does not let a request choose this exit rule."""


class TextTooLong(InvalidRequest, code="text_too_long"):
    """The text has more tokens than the model takes.

    Attributes:
        num_tokens: that were made of it and of texts beside it; 0 if it was refused before.
    """

    def __init__(self, message: str, num_tokens: int = 0) -> None:
        super().__init__(message)
        self.num_tokens = num_tokens


class TooManyInputs(InvalidRequest, code="too_many_inputs"):
    """The request holds more inputs than one request may."""


class UnknownModel(OfframpError, status=404, code="unknown_model"):
    """No model of that name is served."""


class UnknownDetector(UnknownModel, code="unknown_detector"):
    """No policy has a detector of that name, and no model or profile has the name."""


class UnknownBundle(OfframpError, status=404, code="unknown_bundle"):
    """No bundle of that name may be loaded."""


class LoadFailed(OfframpError, status=422, code="load_failed"):
    """A bundle cannot be loaded in every replica; all stays as it is."""

    @classmethod
    def of(cls, error: Exception, folder: str | Path) -> "LoadFailed":
        """Return it with another error's message, which then names no folder but the bundle's."""
        said = str(error)
        for parent in {f"{Path(folder).parent}/", f"{Path(os.path.realpath(folder)).parent}/"}:
            said = said.replace(parent, "")
        return cls(said)


class UnknownVersion(OfframpError, status=404, code="unknown_version"):
    """No such version of a policy is kept."""


class NotFound(OfframpError, status=404, code="not_found"):
    """No such route."""


class MethodNotAllowed(OfframpError, status=405, code="method_not_allowed"):
    """The route does not take this method; `allowed` lists the methods that it takes."""

    def __init__(self, message: str, allowed: str) -> None:
        super().__init__(message)
        self.allowed = allowed


class VersionConflict(OfframpError, status=409, code="version_conflict"):
    """The policy that a change was made from is not the current one any more."""


class RolloutConflict(OfframpError, status=409, code="rollout_conflict"):
    """A rollout does not run, or is not in the state that a move needs."""


class PreconditionFailed(OfframpError, status=412, code="precondition_failed"):
    """No version that `If-Match` names is the current one."""


class PreconditionRequired(OfframpError, status=428, code="precondition_required"):
    """A change does not say which version of the policy it was made from."""


class BodyTooLarge(OfframpError, status=413, code="body_too_large"):
    """The body exceeds the configured limit."""


class UnsupportedMediaType(OfframpError, status=415, code="unsupported_media_type"):
    """The body is declared as something other than JSON, or is compressed in an unknown way."""


class Overloaded(OfframpError, status=429, code="overloaded"):
    """The queue is full; a client should try again after `retry_after_s`."""

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class AnswersWait(Overloaded):
    """Clients have too many answers to take already; the connection is closed.

    Else what follows on it, sent by a client that does not read, would be refused one by one.
    """


class RateLimited(Overloaded, code="rate_limited"):
    """The client has taken its share; it should try again after `retry_after_s`."""


class OwnAnswersWait(AnswersWait, RateLimited):
    """This client has too many answers to take already; the connection is closed."""


class Unauthorized(OfframpError, status=401, code="unauthorized"):
    """No key came with the request, or an unknown one."""


class SeveralKeys(OfframpError, status=400, code="several_keys"):
    """More than one key came with the request, and what stands before may count another one."""


class Forbidden(OfframpError, status=403, code="forbidden"):
    """The key may not do this, or a web page of another origin asks."""


class WrongHost(OfframpError, status=400, code="wrong_host"):
    """The Host header is missing, repeated, malformed, or names a host that is not allowed."""


class NotSupported(OfframpError, status=501, code="not_supported"):
    """The dialect has this, and this server does not."""


class Unavailable(OfframpError, status=503, code="unavailable"):
    """The server is starting, stopping, or has lost its engine."""


class DeadlineExceeded(OfframpError, status=504, code="deadline_exceeded"):
    """The deadline came too early for an answer: a text had not reached its first exit."""

    def __init__(
        self,
        message: str = "timeout_ms passed before every text had come by an exit; allow more time, "
        "or send fewer texts",
    ) -> None:
        super().__init__(message)


class ModelFailure(OfframpError, code="model_failure"):
    """A segment failed, or its last head gave no finite answer."""


class Cancelled(OfframpError, status=499, code="cancelled"):
    """The client left before its answer was ready (nginx's 499)."""


class InvalidBundle(OfframpError, code="invalid_bundle"):
    """A bundle that cannot be loaded: missing, damaged, or of another format version."""


class DeviceUnavailable(OfframpError, code="device_unavailable"):
    """This machine cannot run the requested precision or device."""
