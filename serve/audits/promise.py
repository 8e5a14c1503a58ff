"""What is promised of answers, and so which answers are counted together."""

from pydantic import BaseModel, ConfigDict

from serve.policy.chosen_exit import ChosenExit
from serve.policy.document import DEFAULT
from serve.policy.ladder import Loss
from serve.policy.live import Live


class _Stored(BaseModel):
    # A later version may write more fields.
    model_config = ConfigDict(frozen=True, extra="ignore")


class Bound(_Stored):
    """What a certificate says of one loss: at most `epsilon`, but with probability `delta`."""

    loss: Loss
    epsilon: float
    delta: float


class Promise(_Stored):
    """What is promised of a profile's answers.

    Attributes:
        bounds: one per loss that was asked for.
        rule: the certified rule, as JSON.
        since: version of the policy since which the profile says what it says: after a change,
            and a change back, evidence starts anew. 0 of a request's own target.
    """

    bounds: tuple[Bound, ...]
    rule: str
    since: int


def promise_of(live: Live, profile: str, chosen: ChosenExit) -> Promise | None:
    """Return what answers of a profile, or of another name in `AuditKey`, come with."""
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
    return Promise(bounds=bounds, rule=rule, since=live.entry.since.get(profile, 0))


def promises(live: Live) -> dict[str, Promise | None]:
    """Return the promise of every profile, and of the default where it names none of them."""
    names_one = isinstance(live.entry.policy.default, str)
    return {
        name: promise_of(live, name, chosen)
        for name, chosen in live.applied.named.items()
        if not (names_one and name == DEFAULT)
    }
