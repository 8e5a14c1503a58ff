"""The policy document: the default exit rule, named profiles, and limits on requests."""

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    model_validator,
)

from serve.errors import InvalidRule, OverrideForbidden, UnknownProfile
from serve.policy.flag import Flag
from serve.policy.limits import Limits
from serve.policy.profile import (
    EXAMPLES,
    NO_SETTINGS,
    RULE_TAG,
    TARGET_TAG,
    ProfileEntry,
    RuleOrTarget,
    Settings,
    kind_of_wish,
)
from serve.policy.target import Overload, TargetChoice
from serve.rules import ExitRule, NeverRule, check_rule
from serve.rules.traits import Traits
from serve.validation import OR_PERCENT, RequestModel, unsaid

# From here on an alarm says little: a promise that is kept would often be called broken.
_NO_DELTA = 0.5


class Audit(RequestModel):
    """Which answers are compared with full depth's after they have been sent.

    Attributes:
        share: share of all texts that is audited, drawn without a look at them; 0 for none.
        max_queue_ms: drawn texts are skipped while the queue takes longer to answer.
    """

    share: Annotated[float, Field(ge=0, le=1), OR_PERCENT] = 0.01
    max_queue_ms: Annotated[float, Field(gt=0)] = 100.0


def host_of(url: str) -> str:
    """Return what of a webhook's URL is no secret."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "..."
    return f"{parts.scheme}://{parts.hostname}/..."


def _of_web(url: str) -> str:
    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    if not whole or not (url.isascii() and url.isprintable()) or " " in url:
        raise ValueError("must be an http or https URL such as https://alerts.example.com/offramp")
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            "must hold no user name and no password: everyone who reads the policy would see them"
        )
    return url


class Guard(RequestModel):
    """What happens when audits show that live answers break a promise.

    Attributes:
        on_broken_promise: `alert` sends an alarm; `safer` also moves the profile to a safer rule.
        delta: probability that a promise which is kept is ever called broken.
        webhook: URL to which alarms are posted too; None for none.
    """

    on_broken_promise: Literal["alert", "safer"] = "alert"
    delta: Annotated[float, Field(gt=0, lt=_NO_DELTA)] = 0.01
    webhook: Annotated[str, Field(max_length=2048), AfterValidator(_of_web)] | None = None


ProfileName = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9_.-]{1,64}$")]

# What a header can hold.
DetectorName = Annotated[
    str, StringConstraints(strict=True, pattern=r"^[!-~]([ -~]{0,253}[!-~])?$")
]

# Metrics use this name for the rule of requests without `exit`; no profile may have it.
DEFAULT = "default"

PROFILE_TAG = "<profile>"


def _kind_of_choice(value: Any) -> str | None:
    return PROFILE_TAG if isinstance(value, str) else kind_of_wish(value)


ExitChoice = Annotated[
    Annotated[ExitRule, Tag(RULE_TAG)]
    | Annotated[TargetChoice, Tag(TARGET_TAG)]
    | Annotated[ProfileName, Tag(PROFILE_TAG)],
    Discriminator(
        _kind_of_choice,
        custom_error_type="exit_choice",
        custom_error_message=f"must be {EXAMPLES}, or the name of a profile",
    ),
]


class Policy(RequestModel):
    """Default, named profiles and limits; applied whole or not at all.

    Attributes:
        default: what requests without `exit` get: a rule, a target, or the name of a profile.
        profiles: rules, targets and settings that a request may choose by name.
        limits: what a request may choose.
        detectors: names by which the FMS orchestrator asks, and the profile that each stands for,
            or `default`.
        audit: which answers are compared with full depth's.
        guard: what happens when live answers break a promise.
        overload: when and how far requests move to faster rules; None for never.
    """

    default: ExitChoice = Field(default_factory=NeverRule)
    profiles: dict[ProfileName, ProfileEntry] = Field(default_factory=dict, max_length=64)
    limits: Limits = Limits()
    detectors: dict[DetectorName, ProfileName] = Field(
        default_factory=dict, max_length=64, exclude_if=lambda value: not value
    )
    # Left out of documents that do not say them: replicas compare hashes of them.
    audit: Audit = Field(default=Audit(), exclude_if=lambda value: value == Audit())
    guard: Guard = Field(default=Guard(), exclude_if=lambda value: value == Guard())
    overload: Overload | None = unsaid()

    @model_validator(mode="after")
    def _check_names(self) -> "Policy":
        if DEFAULT in self.profiles:
            raise ValueError(
                f"profiles: {DEFAULT!r} is the name of the rule for requests without exit; "
                "give the profile another one"
            )
        if isinstance(self.default, str) and self.default not in self.profiles:
            raise ValueError(self._no_profile(self.default))
        for detector, name in self.detectors.items():
            if name not in (DEFAULT, *self.profiles):
                raise ValueError(f"detectors.{detector}: {self._no_profile(name)}, or {DEFAULT}")
        return self

    @property
    def wishes(self) -> dict[str, RuleOrTarget]:
        """What each profile asks for, and the default."""
        return {DEFAULT: self.wish_for(None), **self.profile_wishes}

    @property
    def public(self) -> "Policy":
        """The policy without what only those may see who may change it."""
        if self.guard.webhook is None:
            return self
        guard = self.guard.model_copy(update={"webhook": host_of(self.guard.webhook)})
        return self.model_copy(update={"guard": guard})

    @property
    def profile_wishes(self) -> dict[str, RuleOrTarget]:
        """What each profile asks for, by its name."""
        return {name: self._wish_of(entry) for name, entry in self.profiles.items()}

    @property
    def profile_flags(self) -> dict[str, Flag]:
        """The flag of each profile that has one, by its name."""
        flags = {name: self.settings_for(name).flag for name in self.profiles}
        return {name: flag for name, flag in flags.items() if flag is not None}

    def settings_for(self, choice: ExitChoice | None) -> Settings:
        """Return what the profile of a request says besides its exit; see `wish_for`."""
        name = self.default if choice is None else choice
        entry = self.profiles.get(name) if isinstance(name, str) else None
        return entry if isinstance(entry, Settings) else NO_SETTINGS

    def wish_for(self, choice: ExitChoice | None) -> RuleOrTarget:
        """Return the rule or target that a request asks for, limits on layers not applied.

        Raises:
            UnknownProfile: there is no such profile.
            OverrideForbidden: the limits do not allow the choice.
        """
        if choice is None:
            choice = self.default
        elif self.limits.overrides == "none":
            raise OverrideForbidden("exit: the live policy allows no override; leave it out")
        elif self.limits.overrides == "profiles" and not isinstance(choice, str):
            raise OverrideForbidden(
                f"exit: the live policy allows only profiles: {self._profile_names}"
            )
        if not isinstance(choice, str):
            return choice
        if choice not in self.profiles:
            raise UnknownProfile(f"exit: {self._no_profile(choice)}")
        return self._wish_of(self.profiles[choice])

    def _wish_of(self, entry: ProfileEntry) -> RuleOrTarget:
        """Return a profile's exit; without one, the default's."""
        default = self.profiles[self.default] if isinstance(self.default, str) else self.default
        return _exit_of(entry) or _exit_of(default) or NeverRule()

    def check(self, traits: Traits) -> None:
        """Raise `InvalidRule`, naming the place, if the model cannot follow the policy's rules.

        What targets become depends on more than the model: see `serve.policy.applied`.
        """
        bounds = NeverRule(min_layer=self.limits.min_layer, max_layer=self.limits.max_layer)
        rules = {self.place_of(name): wish for name, wish in self.wishes.items()}
        for place, wish in {"limits": bounds, **rules}.items():
            if isinstance(wish, TargetChoice):
                continue
            try:
                check_rule(wish, traits)
                check_rule(self.limits.applied_to(wish), traits)
            except (InvalidRule, OverrideForbidden) as error:
                raise InvalidRule(f"{place}: {error}") from None
        for name, entry in self.profiles.items():
            if isinstance(entry, Settings):
                try:
                    entry.check(traits)
                except InvalidRule as error:
                    raise InvalidRule(f"profiles.{name}.{error}") from None

    def place_of(self, name: str) -> str:
        """Return where the document has the exit of a profile, or of the default."""
        entry = self.profiles.get(name)
        if isinstance(entry, Settings):
            return f"profiles.{name}.exit" if entry.exit else f"profiles.{name}"
        if entry is None and isinstance(self.default, str):
            return self.place_of(self.default)
        return DEFAULT if entry is None else f"profiles.{name}"

    @property
    def _profile_names(self) -> str:
        return ", ".join(sorted(self.profiles)) or "none"

    def _no_profile(self, name: str) -> str:
        return f"no profile {name!r}; the policy has {self._profile_names}"


def _with_default(policy: Policy) -> Policy:
    if "default" not in policy.model_fields_set:
        raise ValueError(
            "default is missing: this policy takes the place of the whole one before it; for "
            'texts that run in full, say {"default": {"rule": "never"}}'
        )
    return policy


# A policy that replaces another: what it leaves out is gone, so it says at least its default.
WholePolicy = Annotated[Policy, AfterValidator(_with_default)]


def _exit_of(entry: ProfileEntry) -> RuleOrTarget | None:
    return entry.exit if isinstance(entry, Settings) else entry
