"""Which model and policy a request has, and what it may not choose by itself."""

import re
from collections.abc import Collection
from typing import Final, NoReturn

from serve.access.gate import Client
from serve.api.request import Request, new_request_id
from serve.classifier.catalog import Catalog
from serve.classifier.classification import Classification
from serve.classifier.classifier import Classifier
from serve.classifier.classify_request import ClassifyRequest
from serve.errors import (
    DeadlineExceeded,
    Forbidden,
    InvalidRequest,
    OverrideForbidden,
    UnknownModel,
)
from serve.policy.limits import Lockable
from serve.policy.live import Live
from serve.policy.profile import Settings, SpecialTokens
from serve.policy.target import TargetChoice
from serve.rules.criterion import Reason

# Requests with the same value are in the same arm of a rollout.
STICKY: Final = "x-offramp-sticky"
_STICKY_VALUE: Final = re.compile(r"[ -~]{1,256}")
# How tokens become the entities that a profile's flag looks at.
_AGGREGATIONS: Final = (None, "simple")


def models_for(catalog: Catalog, client: Client) -> list[Classifier]:
    """Return the models that a client may ask.

    A key that is bound to an alias may ask the model that the alias names now, and a key that is
    bound to a model may ask it by any alias.
    """
    key = client.key
    if key is None or not key.models:
        return list(catalog)
    named = [catalog.found.get(name) for name in key.models]
    return [each for each in catalog if each in named]


def model_for(catalog: Catalog, client: Client, name: str | None) -> Classifier:
    """Return the model that a request names, or the only one that its client may ask.

    A client whose key is bound to models learns of no others.

    Raises:
        Forbidden: the key is bound to others.
        OfframpError: there is no such model, or none is named of several.
    """
    key = client.key
    if key is None or not key.models:
        return catalog.pick(name)
    served = models_for(catalog, client)
    found = catalog.unnamed if name is None else catalog.found.get(name)
    if found in served:
        return found
    if name is None and len(served) == 1:
        return served[0]
    if name is None or name not in key.models:
        raise Forbidden(
            f"model: the key {key.name} is bound to {', '.join(key.models)}; ask for one of these"
        )
    raise UnknownModel(f"no model {name!r} is served, though the key {key.name} is bound to it")


def followed_by(request: Request, classifier: Classifier) -> Live:
    """Return the policy that a request to a model follows, the same whenever it is asked for.

    Raises:
        InvalidRequest: the header that decides about it cannot be read.
    """
    live = request.followed.get(classifier.policy)
    if live is None:
        live = classifier.policy.live
        # Read without a rollout too, so that no request is refused only once one has started.
        sticky = _sticky(request) if STICKY in request.headers else None
        key = request.client.key
        if key is not None and not key.may("read"):
            sticky = None
        rollout = live.entry.running
        if live.candidate and rollout:
            # Clients choose their requests' ids, and one that tries values would choose its arm.
            dealt_by = f"sticky/{sticky}" if sticky else f"request/{new_request_id()}"
            live = live.candidate if rollout.takes(dealt_by) else live
        request.followed[classifier.policy] = live
    request.arm = classifier.rollout.traffic(live.arm) if live.arm else None
    return live


def note_own_choice(
    request: Request, classifier: Classifier, asked: ClassifyRequest, assigned: bool = False
) -> None:
    """Note if a request asks by what it has brought itself, which says nothing of a candidate.

    That is a rule or a target of its own, or a name that the live policy does not have; but a
    candidate that takes away from requests that they may bring a rule is to blame for refusals.
    """
    live, choice = classifier.policy.live, asked.exit_choice
    if choice is None or assigned:
        return
    if isinstance(choice, str):
        own = choice not in live.entry.policy.profiles
    else:
        policies = (live, live.candidate or live)
        overrides = [each.entry.policy.limits.overrides for each in policies]
        own = overrides[0] != "any" or overrides[1] == "any"
    if own:
        request.count_in_no_verdict()


def _sticky(request: Request) -> str:
    value = request.headers[STICKY]
    if STICKY in request.headers.repeated:
        raise InvalidRequest(f"{STICKY}: comes more than once; send one")
    if not _STICKY_VALUE.fullmatch(value):
        raise InvalidRequest(f"{STICKY}: must be 1 to 256 printable characters of ASCII")
    return value


def bound(client: Client, asked: ClassifyRequest) -> ClassifyRequest:
    """Return a request with the profile that the client's key is bound to.

    Raises:
        Forbidden: it asks for another exit.
    """
    key = client.key
    if key is None or not key.profiles:
        return asked
    choice = asked.exit_choice
    if choice is None:
        return asked.model_copy(update={"exit": key.profiles[0]})
    if not isinstance(choice, str) or choice not in key.profiles:
        raise Forbidden(
            f"exit: the key {key.name} is bound to the profiles {_listed(key.profiles)}; leave "
            "exit out, or name one of these"
        )
    return asked


class Locks:
    """Tells what one request may choose by itself."""

    def __init__(
        self,
        request: Request,
        classifier: Classifier,
        asked: ClassifyRequest,
        guardrail: bool,
        assigned: bool = False,
    ) -> None:
        """Look at the policy that the request follows.

        Args:
            request: that has come.
            classifier: what answers.
            asked: what it asks, as `bound` returns it.
            guardrail: whether a guardrail asks; it keeps the flag of a policy that has one.
            assigned: as `AppliedPolicy.exit_for` has it; always true for a bound key.

        Raises:
            OfframpError: of the choice.
        """
        entry, applied, *_ = followed_by(request, classifier)
        client = request.client
        self._limits, self._guardrail = entry.policy.limits, guardrail
        self._guarding = guardrail and applied.has_flag
        self._request, self._live = request, classifier.policy.live
        self._key = client.key if client.key is not None and client.key.profiles else None
        self.settings: Settings = applied.exit_for(
            asked.exit_choice, assigned or self._key is not None, asked.flag
        ).settings
        self.special_tokens: SpecialTokens = self.settings.special_tokens or (
            "text" if guardrail else "ids"
        )

    def keeps(self, setting: Lockable) -> bool:
        """Tell whether a request may not choose a setting by itself."""
        return self._key is not None or not self._limits.lets_choose(setting, self._guarding)

    def check(self, asked: ClassifyRequest) -> None:
        """Refuse what a request may not choose.

        Raises:
            Forbidden: its key is bound to a profile.
            OverrideForbidden: the policy says so.
        """
        kept, ids = self.settings, asked.special_tokens == "ids"
        own_exit = self._guardrail and not isinstance(asked.exit_choice, str | None)
        # The rest of a truncated text passes unread.
        reads_all = kept.windows is not None or bool(kept.flag)
        chosen: tuple[tuple[str, Lockable, bool], ...] = (
            ("flag", "flag", asked.flag is not None),
            ("exit", "flag", own_exit),
            ("aggregation", "flag", bool(kept.flag) and asked.aggregation not in _AGGREGATIONS),
            ("windows", "windows", asked.windows is not None),
            ("truncate", "windows", reads_all and asked.truncate),
            ("special_tokens", "special_tokens", ids and self.special_tokens == "text"),
        )
        for field, setting, is_chosen in chosen:
            if is_chosen and self.keeps(setting):
                self.refuse(field, setting)

    def unchecked(self, wanted: Collection[str]) -> Collection[str]:
        """Return what may pass without a look: what the profile says, and what a request wants.

        Raises:
            OfframpError: as `check`.
        """
        own = self.settings.unchecked or ()
        if self.keeps("unchecked") and not set(wanted).issubset(own):
            self.refuse("unchecked", "unchecked")
        return {*own, *wanted}

    def refuse(self, field: str, setting: Lockable) -> NoReturn:
        """Refuse a request; it counts in no verdict if the live policy refuses the same.

        Raises:
            OfframpError: always.
        """
        guarding = self._guardrail and self._live.applied.has_flag
        if not self._live.entry.policy.limits.lets_choose(setting, guarding):
            self._request.count_in_no_verdict()
        if self._key is not None:
            raise Forbidden(
                f"{field}: the key {self._key.name} is bound to its profile, which decides that; "
                f"leave {field} out"
            )
        if self._guarding and getattr(self._limits, setting) is None:
            raise OverrideForbidden(
                f"{field}: the live policy has a flag, which a guardrail's request may not change "
                f'unless "limits": {{"{setting}": "any"}} says so; leave {field} out, or put it '
                "into the profile"
            )
        raise OverrideForbidden(
            f"{field}: the live policy lets no request choose it (limits.{setting} is none); leave "
            f"{field} out"
        )


def check_locks(request: Request, classifier: Classifier, asked: ClassifyRequest) -> None:
    """Refuse what a request may not choose, as `Locks.check`; most requests choose nothing."""
    if (
        asked.flag is not None
        or asked.windows is not None
        or asked.aggregation is not None
        or asked.special_tokens is not None
        or (asked.truncate and followed_by(request, classifier).applied.reads_all)
    ):
        Locks(request, classifier, asked, guardrail=False).check(asked)


def check_degrade(request: Request, classifier: Classifier, asked: ClassifyRequest) -> None:
    """Refuse `degrade` where a request may not choose its exit, or asks by a rule.

    Raises:
        Forbidden: its key is bound to a profile.
        OverrideForbidden: the policy lets requests choose nothing.
        InvalidRequest: it asks by a rule.
    """
    client = request.client
    if client.key is not None and client.key.profiles:
        raise Forbidden(
            f"degrade: the key {client.key.name} is bound to its profile, which decides that; "
            "leave degrade out"
        )
    if followed_by(request, classifier).entry.policy.limits.overrides == "none":
        if classifier.policy.live.entry.policy.limits.overrides == "none":
            request.count_in_no_verdict()
        raise OverrideForbidden(
            "degrade: the live policy lets no request choose it (limits.overrides is none); leave "
            "degrade out"
        )
    if asked.degrade and not isinstance(asked.exit_choice, str | TargetChoice | None):
        raise InvalidRequest(
            "degrade: a rule has no place on the ladder to move from; ask for a target such as "
            '{"target": {"max_disagreement": 0.01}}, or leave degrade out'
        )


def check_complete(request: Request, answered: Classification) -> None:
    """Refuse to call a text unflagged that a deadline has cut short, where the flag is kept.

    Else a request could choose by its deadline at which layer the text leaves.

    Raises:
        DeadlineExceeded: there is such a text.
    """
    flagger = answered.flagger
    if flagger is None or all(each.reason is not Reason.DEADLINE for each in answered.answers):
        return
    if Locks(request, answered.classifier, answered.asked, guardrail=False).keeps("flag"):
        for answer, tokens in zip(answered.answers, answered.tokens, strict=True):
            if answer.reason is Reason.DEADLINE and not flagger.flags(answer, tokens):
                raise undecided()


def undecided() -> DeadlineExceeded:
    """Return the error of a request whose texts may be flagged by layers that did not run."""
    return DeadlineExceeded(
        "timeout_ms passed before every text had left by its rule, so the server cannot say that "
        "none is flagged; allow more time"
    )


def _listed(names: Collection[str]) -> str:
    return ", ".join(names)
