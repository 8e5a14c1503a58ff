"""Which promise an answer comes with, and so which counts its audit belongs to."""

from typing import Final

from serve.audits.counts import Bound, Key, Promise
from serve.policy.applied import ChosenExit
from serve.policy.document import DEFAULT
from serve.policy.live import Live
from serve.policy.resolution import Resolution

# The profile of requests that bring a rule or a target of their own.
REQUEST: Final = "request"


def key_of(live: Live, profile: str, chosen: ChosenExit) -> Key:
    """Return the key of answers under a profile, under `default`, or under `REQUEST`."""
    bounds = _bounds(chosen.resolution)
    if not bounds:
        return Key(profile)
    since = 0 if profile == REQUEST else live.entry.since.get(profile, 0)
    rule = chosen.rule.rule.model_dump_json(exclude_none=True)
    return Key(profile, Promise(bounds=bounds, rule=rule, since=since))


def live_keys(live: Live) -> list[Key]:
    """Return the key of every profile, and of the default where it names none of them."""
    named = live.applied.named
    if isinstance(live.entry.policy.default, str):
        named = {name: chosen for name, chosen in named.items() if name != DEFAULT}
    return [key_of(live, name, chosen) for name, chosen in named.items()]


def _bounds(resolution: Resolution | None) -> tuple[Bound, ...]:
    if resolution is None:
        return ()
    certificates = resolution.certificates
    if certificates is None:
        certificates = (resolution.certificate,) if resolution.certificate else ()
    return tuple(Bound(loss=c.loss, epsilon=c.epsilon, delta=c.delta) for c in certificates)
