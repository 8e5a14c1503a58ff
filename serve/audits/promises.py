"""Which promise an answer comes with, and so which counts its audit belongs to."""

from serve.audits.counts import Bound, Key, Promise
from serve.policy.chosen_exit import ChosenExit
from serve.policy.document import DEFAULT
from serve.policy.live import Live


def promise_of(live: Live, profile: str, chosen: ChosenExit) -> Promise | None:
    """Return what answers come with under a name as in `Key`; None for nothing."""
    resolution = chosen.resolution
    if resolution is None:
        return None
    found = resolution.certificates
    if found is None:
        found = (resolution.certificate,) if resolution.certificate else ()
    if not found:
        return None
    bounds = tuple(Bound(loss=c.loss, epsilon=c.epsilon, delta=c.delta) for c in found)
    rule = chosen.rule.rule.model_dump_json(exclude_none=True)
    since = live.entry.since.get(profile, 0)  # 0 of what is no profile
    return Promise(bounds=bounds, rule=rule, since=since)


def live_keys(live: Live) -> list[Key]:
    """Return the key of every profile, and of the default where it names none of them."""
    named = live.applied.named
    if isinstance(live.entry.policy.default, str):
        named = {name: chosen for name, chosen in named.items() if name != DEFAULT}
    return [Key(name, promise_of(live, name, chosen)) for name, chosen in named.items()]
