"""What a change of a policy would do."""

from functools import partial
from typing import Any, Final

from fastapi import FastAPI
from pydantic import ValidationError

from serve.api.classification import Reply
from serve.api.context import AppContext
from serve.api.documented import body_errors
from serve.api.dry_run_report import Proposed, report
from serve.api.endpoint import Endpoint
from serve.api.record import RequestRecord
from serve.api.routes.models import UNKNOWN_MODEL
from serve.api.schemas.dry_run import DryRunReport, DryRunRequest
from serve.api.schemas.error import ErrorBody
from serve.api.schemas.policy import PolicyUpdate
from serve.dry_run.predicted import exits_of, expected, live_here
from serve.errors import InvalidRule, VersionConflict
from serve.policy.applied import AppliedPolicy, check_policy
from serve.policy.live import VersionedPolicy
from serve.policy.served_ladder import ServedLadder
from serve.validation import explain

PATH: Final = "/v1/models/{model}/policy/dry-run"


def add_dry_run_route(app: FastAPI, context: AppContext) -> None:
    """Add the route that tries a change of a policy."""
    responses: dict[int | str, dict[str, Any]] = {
        **body_errors(),
        **UNKNOWN_MODEL,
        409: {"model": ErrorBody, "description": "Another version is current."},
        429: {"model": ErrorBody, "description": "Another dry run is under way."},
    }
    documented = {"tags": ["policy"], "response_model": DryRunReport, "responses": responses}
    Endpoint(PATH, DryRunRequest, dry_run, documented, scope="admin").add_to(app, context)


async def dry_run(context: AppContext, record: RequestRecord, body: DryRunRequest) -> Reply:
    """Say what a change of the policy would do, and change nothing.

    Its profiles and those of the live policy are tried on what every exit has said of recorded
    texts, and of the live texts that were audited.
    """
    classifier = context.catalog.find(record.params["model"])
    record.model = classifier.name
    entry, applied = classifier.policy.live
    if body.version is not None and body.version != entry.version:
        raise VersionConflict(
            f"the policy is at version {entry.version}, this change was made from version "
            f"{body.version}; read it again and repeat the change"
        )
    with context.dry_runs.only_one():
        run = context.dry_runs.run
        proposed = await run(_propose, _document(body, entry), classifier.ladder)
        exits = exits_of(applied, proposed.applied)
        on_recording = await run(expected, classifier, exits)
        policy = proposed.policy.model_dump_json() if proposed.applied and proposed.policy else None
        here = partial(run, live_here, classifier, policy)
        replayed = await context.replicas.try_on_audits(classifier.name, policy, here)
        made = await run(report, entry, proposed, exits, on_recording, replayed, classifier.name)
    return Reply(made)


def _document(body: DryRunRequest, entry: VersionedPolicy) -> Any:
    """Return the JSON of the policy that is tried."""
    return body.policy


def _propose(document: Any, ladder: ServedLadder) -> Proposed:
    try:
        policy = PolicyUpdate.model_validate({"policy": document}).policy
    except ValidationError as error:
        return Proposed(problem=explain(error))
    problem = None
    try:
        check_policy(policy, ladder)
    except InvalidRule as error:
        problem = str(error)
    try:
        return Proposed(policy, AppliedPolicy(policy, ladder), problem)
    except InvalidRule as error:
        return Proposed(policy, None, problem or str(error))
