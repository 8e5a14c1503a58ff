"""What the policy says of audits, and of a promise that live answers break."""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from serve.validation import RequestModel

# From here on an alarm says little: a promise that is kept would often be called broken.
_NO_DELTA = 0.5


class Audit(RequestModel):
    """Which answers are compared with full depth's after they have been sent.

    Attributes:
        share: share of all texts that is audited, drawn without a look at them; 0 for none.
        max_queue_ms: drawn texts are skipped while the queue takes longer to answer.
    """

    share: Annotated[float, Field(ge=0, le=1)] = 0.01
    max_queue_ms: Annotated[float, Field(gt=0)] = 100.0


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
