"""What a change of a policy would do."""

from functools import partial
from typing import Final

from serve.api.context import AppContext
from serve.api.documented import body_errors, errors
from serve.api.precondition import Precondition, read_precondition
from serve.api.request import Request
from serve.api.response import Response, json_response
from serve.api.route import Route
from serve.api.routes.models import UNKNOWN_MODEL, named_model
from serve.api.schemas.dry_run import DryRunReport, DryRunRequest, Proposed
from serve.dry_run.predicted import exits_of, on_audits_here, on_recording
from serve.errors import InvalidRequest, InvalidRule, PreconditionFailed, VersionConflict
from serve.policy.applied import AppliedPolicy, checked
from serve.policy.document import Policy
from serve.policy.served_ladder import ServedLadder


async def dry_run(context: AppContext, request: Request, body: DryRunRequest) -> Response:
    """Say what a change of the policy would do, and change nothing.

    Its profiles and those of the live policy are tried on what every exit has said of recorded
    texts, and of the live texts that were audited.
    """
    classifier = named_model(context, request)
    entry, applied, *_ = classifier.policy.live
    _check_version(read_precondition(request.headers, body), entry.version)
    with context.dry_runs.only_one():
        run = context.dry_runs.run
        proposed = await run(_propose, body, entry.policy, classifier.ladder)
        exits = exits_of(applied, proposed.applied)
        recorded = await run(on_recording, classifier, exits)
        policy = proposed.policy.model_dump_json() if proposed.applied and proposed.policy else None
        here = partial(run, on_audits_here, classifier, policy)
        replayed = await context.replicas.try_on_audits(classifier.name, policy, here)
        told = classifier.name, entry, proposed, exits, recorded, replayed
        report = await run(DryRunReport.of, *told)
    return json_response(report, exclude_none=True)


_PATH: Final = "/v1/models/{model}/policy/dry-run"
_DOCUMENTED: Final = {
    "tags": ["policy"],
    "response_model": DryRunReport,
    "responses": {
        **body_errors(),
        **UNKNOWN_MODEL,
        **errors(
            {
                409: "Another version is current.",
                412: "No version of If-Match is current.",
                422: "Neither a policy nor a patch came, or both.",
                429: "Another dry run is under way.",
            }
        ),
    },
}
ROUTES: Final = (Route("POST", _PATH, dry_run, "admin", DryRunRequest, documented=_DOCUMENTED),)


def _propose(body: DryRunRequest, live: Policy, ladder: ServedLadder) -> Proposed:
    try:
        policy = body.made_of(live)
    except InvalidRequest as error:
        return Proposed(problem=str(error))
    try:
        return Proposed(policy, checked(policy, ladder))
    except InvalidRule as error:
        problem = str(error)
    try:
        return Proposed(policy, AppliedPolicy(policy, ladder), problem)
    except InvalidRule:
        return Proposed(policy, None, problem)


def _check_version(condition: Precondition, current: int) -> None:
    if condition.versions is not None and current not in condition.versions:
        refused = PreconditionFailed if condition.by_header else VersionConflict
        raise refused(
            f"the policy is at version {current}, and this change was made from another one; read "
            "it again and repeat the change"
        )
