"""The errors that callers may see: one tree, each class with its HTTP status and a stable code.

A message says what was wrong, where, and what would be right. Any other exception reaches the
client as a 500 without detail, and the log in full.
"""

import asyncio
from pathlib import Path
from typing import Final

# What ends a task or the process. Any other exception is an error of one request: also the panic of
# a library in Rust, which is no `Exception`.
STOPS: Final = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)


class OfframpError(Exception):
    """Base of all expected errors."""

    status = 500
    code = "internal"


class InvalidRequest(OfframpError):
    """The request is well-formed JSON but asks for something impossible."""

    status = 422
    code = "invalid_request"


class InvalidTensor(InvalidRequest):
    """A tensor, or what goes with it, that is not as the Open Inference Protocol has it."""

    status = 400
    code = "invalid_tensor"


class MalformedBody(OfframpError):
    """The body is not well-formed JSON."""

    status = 400
    code = "malformed_body"


class BadRequest(OfframpError):
    """What came is not well-formed HTTP/1.1."""

    status = 400
    code = "bad_request"


class RequestTimeout(OfframpError):
    """The request came too slowly."""

    status = 408
    code = "request_timeout"


class HeadTooLarge(OfframpError):
    """The request line with the headers, or one line between chunks, exceeds the limit."""

    status = 431
    code = "head_too_large"


class TargetTooLong(OfframpError):
    """The target of the request, a path with its query, exceeds the limit."""

    status = 414
    code = "target_too_long"


class InvalidRule(InvalidRequest):
    """An exit rule that contradicts itself or that the model cannot follow."""

    code = "invalid_rule"


class TargetOutOfReach(InvalidRule):
    """No rule keeps all bounds of a target; the message names the nearest that can be had."""

    code = "target_out_of_reach"


class UnknownProfile(InvalidRequest):
    """The request names a profile the live policy does not have."""

    code = "unknown_profile"


class NoFlag(InvalidRequest):
    """A guardrail asks, and neither the request nor its profile has a flag to decide by."""

    code = "no_flag"


class OverrideForbidden(OfframpError):
    """The live policy does not let a request choose this exit rule."""

    status = 403
    code = "override_forbidden"


class TextTooLong(InvalidRequest):
    """The text has more tokens than the model takes.

    Attributes:
        num_tokens: that were made of it and of texts beside it; 0 if it was refused before.
    """

    code = "text_too_long"

    def __init__(self, message: str, num_tokens: int = 0) -> None:
        super().__init__(message)
        self.num_tokens = num_tokens


class TooManyInputs(InvalidRequest):
    """The request holds more inputs than one request may."""

    code = "too_many_inputs"


class UnknownModel(OfframpError):
    """No model of that name is served."""

    status = 404
    code = "unknown_model"


class UnknownDetector(UnknownModel):
    """No policy has a detector of that name, and no model or profile has the name."""

    code = "unknown_detector"


class UnknownBundle(OfframpError):
    """No bundle of that name may be loaded."""

    status = 404
    code = "unknown_bundle"


class LoadFailed(OfframpError):
    """A bundle cannot be loaded in every replica; all stays as it is."""

    status = 422
    code = "load_failed"

    @classmethod
    def of(cls, error: Exception, folder: str | Path) -> "LoadFailed":
        """Return it with another error's message, which then names no folder but the bundle's."""
        said = str(error)
        for parent in {f"{Path(folder).parent}/", f"{Path(folder).resolve().parent}/"}:
            said = said.replace(parent, "")
        return cls(said)


class UnknownVersion(OfframpError):
    """No such version of a policy is kept."""

    status = 404
    code = "unknown_version"


class NotFound(OfframpError):
    """No such route."""

    status = 404
    code = "not_found"


class MethodNotAllowed(OfframpError):
    """The route does not take this method; `allowed` lists the methods that it takes."""

    status = 405
    code = "method_not_allowed"

    def __init__(self, message: str, allowed: str) -> None:
        super().__init__(message)
        self.allowed = allowed


class VersionConflict(OfframpError):
    """The policy that a change was made from is not the current one any more."""

    status = 409
    code = "version_conflict"


class RolloutConflict(OfframpError):
    """A rollout does not run, or is not in the state that a move needs."""

    status = 409
    code = "rollout_conflict"


class PreconditionFailed(OfframpError):
    """No version that `If-Match` names is the current one."""

    status = 412
    code = "precondition_failed"


class PreconditionRequired(OfframpError):
    """A change does not say which version of the policy it was made from."""

    status = 428
    code = "precondition_required"


class BodyTooLarge(OfframpError):
    """The body exceeds the configured limit."""

    status = 413
    code = "body_too_large"


class UnsupportedMediaType(OfframpError):
    """The body is declared as something other than JSON, or is compressed in an unknown way."""

    status = 415
    code = "unsupported_media_type"


class Overloaded(OfframpError):
    """The queue is full; a client should try again after `retry_after_s`."""

    status = 429
    code = "overloaded"

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class AnswersWait(Overloaded):
    """Clients have too many answers to take already; the connection is closed.

    Else what follows on it, sent by a client that does not read, would be refused one by one.
    """


class RateLimited(Overloaded):
    """The client has taken its share; it should try again after `retry_after_s`."""

    code = "rate_limited"


class OwnAnswersWait(AnswersWait, RateLimited):
    """This client has too many answers to take already; the connection is closed."""


class Unauthorized(OfframpError):
    """No key came with the request, or an unknown one."""

    status = 401
    code = "unauthorized"


class SeveralKeys(OfframpError):
    """More than one key came with the request, and what stands before may count another one."""

    status = 400
    code = "several_keys"


class Forbidden(OfframpError):
    """The key may not do this, or a web page of another origin asks."""

    status = 403
    code = "forbidden"


class WrongHost(OfframpError):
    """The Host header is missing, repeated, malformed, or names a host that is not allowed."""

    status = 400
    code = "wrong_host"


class NotSupported(OfframpError):
    """The dialect has this, and this server does not."""

    status = 501
    code = "not_supported"


class Unavailable(OfframpError):
    """The server is starting, stopping, or has lost its engine."""

    status = 503
    code = "unavailable"


class DeadlineExceeded(OfframpError):
    """The deadline came too early for an answer: a text had not reached its first exit."""

    status = 504
    code = "deadline_exceeded"

    def __init__(
        self,
        message: str = "timeout_ms passed before every text had come by an exit; allow more time, "
        "or send fewer texts",
    ) -> None:
        super().__init__(message)


class ModelFailure(OfframpError):
    """A segment failed, or its last head gave no finite answer."""

    code = "model_failure"


class Cancelled(OfframpError):
    """The client left before its answer was ready (nginx's 499)."""

    status = 499
    code = "cancelled"


class InvalidBundle(OfframpError):
    """A bundle that cannot be loaded: missing, damaged, or of another format version."""

    code = "invalid_bundle"


class DeviceUnavailable(OfframpError):
    """This machine cannot run the requested precision or device."""

    code = "device_unavailable"
