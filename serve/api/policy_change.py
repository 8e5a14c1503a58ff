"""A change of a policy: from the version that it names to all replicas that follow it."""

import re
from functools import partial
from typing import Final, NamedTuple

from serve.api.context import AppContext
from serve.api.policy_edits import ChangeRequest, PolicyEdit
from serve.api.replicas import Refreshed
from serve.api.request import Headers, Request
from serve.api.routes.models import named_model
from serve.api.trail import note_change, to_its_end
from serve.classifier.classifier import Classifier
from serve.errors import (
    InvalidRequest,
    PreconditionFailed,
    PreconditionRequired,
    VersionConflict,
)
from serve.policy.entry import Action, Change
from serve.policy.live import LivePolicy, MakeNext, Replacement

_TAG: Final = r'(?:W/)?"[^"]*"'
_TAGS: Final = re.compile(rf"[ \t]*{_TAG}(?:[ \t]*,[ \t]*{_TAG})*[ \t]*")
# Changes that go back to what was before, or keep it.
_BACK: Final = ("rollback", "pause", "abort")
# The other headers with conditions that apply to a change (RFC 9110, 13.1).
_NOT_TAKEN: Final = ("if-none-match", "if-unmodified-since")


class Precondition(NamedTuple):
    """What a change was made from.

    Attributes:
        versions: versions of which one must be current; None where any may be.
        by_header: whether `If-Match` says so.
    """

    versions: frozenset[int] | None
    by_header: bool

    def change(self, live: LivePolicy, new: MakeNext, change: Change) -> Replacement:
        """Change a policy if the condition holds. May block.

        Raises:
            PreconditionFailed: no version of `If-Match` is current.
            VersionConflict: the body's version is not current.
            OfframpError: of the change.
        """
        if self.versions is not None and not self.versions:
            raise PreconditionFailed(
                "If-Match: none of its tags is that of a version; the policy is at version "
                f"{live.refresh().version}; send the ETag of GET, such as {tag_of(3)}, without W/"
            )
        based_on = None if self.versions is None else self._one_of(live, self.versions)
        try:
            return live.change(new, based_on, change)
        except VersionConflict as conflict:
            if self.by_header:
                raise PreconditionFailed(f"If-Match: {conflict}") from None
            raise

    def _one_of(self, live: LivePolicy, versions: frozenset[int]) -> int:
        """Return the version that must be current; of several the one that is."""
        if len(versions) == 1:
            return min(versions)
        current = live.refresh().version
        return current if current in versions else max(versions)


def tag_of(version: int) -> str:
    """Return the `ETag` of a version."""
    return f'"{version}"'


def read_precondition(headers: Headers, update: ChangeRequest) -> Precondition:
    """Return the condition of a change.

    Raises:
        PreconditionRequired: there is none.
        InvalidRequest: the header is malformed, or contradicts the body.
    """
    if other := next((name for name in _NOT_TAKEN if name in headers), None):
        raise InvalidRequest(f"{other}: a change of a policy takes If-Match alone")
    given = headers.get("if-match")
    if given is None:
        if update.needs_version and "version" not in update.model_fields_set:
            raise PreconditionRequired(
                "say which version this change was made from: `version` in the body, or the "
                'header If-Match with the ETag of GET; `"version": null` replaces any'
            )
        version = update.version
        return Precondition(None if version is None else frozenset((version,)), by_header=False)
    tagged = _versions_in(given, repeated="if-match" in headers.repeated)
    if update.version is None:
        return Precondition(tagged, by_header=tagged is not None)
    if tagged is not None and update.version not in tagged:
        raise InvalidRequest(
            f"version: {update.version} contradicts If-Match: {given[:64]}; leave one of them out"
        )
    return Precondition(frozenset((update.version,)), by_header=tagged is not None)


def _versions_in(given: str, repeated: bool) -> frozenset[int] | None:
    """Return the versions of an `If-Match`; None for `*`. Weak tags match nothing."""
    if repeated:
        raise InvalidRequest("If-Match: comes more than once; send one, with commas between tags")
    if given.strip(" \t") == "*":
        return None
    if not _TAGS.fullmatch(given):
        raise InvalidRequest(f'If-Match: must be * or tags in quotes such as "3", not {given[:64]}')
    tags = re.findall(_TAG, given)
    return frozenset(int(tag[1:-1]) for tag in tags if re.fullmatch(r'"[1-9][0-9]{0,17}"', tag))


class Changed(NamedTuple):
    """A model, what has changed of its policy, and the replicas that follow it already."""

    classifier: Classifier
    made: Replacement
    refreshed: Refreshed


async def change_policy(
    context: AppContext, request: Request, body: PolicyEdit, action: Action
) -> Changed:
    """Make the change that a client asks for, also if the client leaves meanwhile.

    Raises:
        OfframpError: the change is refused; nothing has changed.
    """
    request.asked = body
    return await to_its_end(request, _changed(context, request, body, action))


async def _changed(
    context: AppContext, request: Request, body: PolicyEdit, action: Action
) -> Changed:
    classifier = named_model(context, request)
    condition = read_precondition(request.headers, body)
    change = Change(request.by, body.why, action)
    wanted = partial(body.wanted, classifier, action)
    made = await context.policy_threads.change(
        partial(condition.change, classifier.policy, wanted, change), action in _BACK
    )
    if made.new is not made.old:
        note_change(request, made.old, made.new)
    return Changed(classifier, made, await context.replicas.refresh_policy(classifier.name))
