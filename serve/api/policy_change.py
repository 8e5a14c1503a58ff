"""A change of a policy or rollout: made to its end, logged, and followed by all replicas."""

from functools import partial
from typing import NamedTuple

from serve.api.context import AppContext
from serve.api.policy_edits import PolicyEdit
from serve.api.precondition import read_precondition
from serve.api.replicas import Refreshed
from serve.api.request import Request
from serve.api.routes.models import named_model
from serve.api.trail import note_change, to_its_end
from serve.classifier.classifier import Classifier
from serve.policy.entry import ANONYMOUS, Action, Change
from serve.policy.live import Replacement


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
    change = Change(request.client.name or ANONYMOUS, body.why, action)
    wanted = partial(body.wanted, classifier, action)
    made = await context.policy_threads.change(
        partial(condition.change, classifier.policy, wanted, change)
    )
    note_change(request, made.old, made.new)
    return Changed(classifier, made, await context.replicas.refresh_policy(classifier.name))
