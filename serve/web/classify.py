"""POST /v1/classify."""

import asyncio
import math
import time
from collections.abc import Coroutine
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive

from serve.classifier import Classified
from serve.errors import Cancelled, TooManyInputs
from serve.manifest import Manifest
from serve.row import Answer, Priority
from serve.signals import softmax
from serve.web.body import BODY_ERRORS, JsonRoute
from serve.web.schemas import ClassifyRequest, ClassifyResponse, ErrorBody
from serve.web.site import Site

ERRORS: dict[int | str, dict[str, Any]] = {
    **BODY_ERRORS,
    403: {"model": ErrorBody, "description": "The policy does not allow this `exit`."},
    404: {"model": ErrorBody, "description": "No such model."},
    422: {"model": ErrorBody, "description": "The request asks for something that cannot be."},
    429: {"model": ErrorBody, "description": "The queue is full; see Retry-After."},
    500: {"model": ErrorBody, "description": "The model failed on this input."},
    503: {"model": ErrorBody, "description": "The server is starting or stopping."},
    504: {"model": ErrorBody, "description": "timeout_ms passed before the first exit."},
}


def classify_routes(site: Site) -> APIRouter:
    """Return the classification route."""
    router = APIRouter(tags=["classify"], route_class=JsonRoute)

    @router.post("/v1/classify", response_model=ClassifyResponse, responses=ERRORS)
    async def classify(body: ClassifyRequest, request: Request) -> Response:
        """Classify one or more texts, each leaving the model when its exit rule allows."""
        classifier = site.catalog.pick(body.model)
        request.state.model = classifier.name
        texts = body.texts()
        if len(texts) > site.limits.max_inputs:
            raise TooManyInputs(
                f"inputs: {len(texts)} texts, at most {site.limits.max_inputs} per request"
            )
        deadline_s = math.inf
        if body.timeout_ms is not None:
            deadline_s = request.state.arrived_s + body.timeout_ms / 1000
        try:
            done = await _unless_client_leaves(
                request.receive,
                classifier.classify(
                    texts, body.exit, deadline_s, body.truncate, Priority[body.priority.upper()]
                ),
            )
        except asyncio.CancelledError:  # Ray Serve's way of saying that the client has left
            site.metrics.disconnected(classifier.name)
            raise
        except _ClientLeft:
            site.metrics.disconnected(classifier.name)
            raise Cancelled("the client has left") from None
        answered_s = time.monotonic() - request.state.arrived_s
        manifest = classifier.bundle.manifest
        return JSONResponse(_response(classifier.name, manifest, done, body.top_k, answered_s))

    return router


class _ClientLeft(Exception):
    pass


async def _unless_client_leaves(
    receive: Receive, work: Coroutine[Any, Any, Classified]
) -> Classified:
    """Return what the work returns, or cancel it when the client disconnects."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnect(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise _ClientLeft
    finally:
        gone.cancel()
        task.cancel()


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _response(
    name: str, manifest: Manifest, done: Classified, top_k: int | None, total_s: float
) -> dict[str, Any]:
    return {
        "model": name,
        "policy_version": done.policy_version,
        "results": [_result(manifest, answer, top_k) for answer in done.answers],
        "timing": {
            "queue_ms": _ms(max(answer.queue_s for answer in done.answers)),
            "compute_ms": _ms(max(answer.compute_s for answer in done.answers)),
            "total_ms": _ms(total_s),
        },
    }


def _result(manifest: Manifest, answer: Answer, top_k: int | None) -> dict[str, Any]:
    p = softmax(answer.logits)
    best_first = (-p).argsort(kind="stable")[:top_k]
    scores = {manifest.labels[i]: _short(p[i]) for i in best_first}
    label = manifest.labels[best_first[0]]
    return {
        "label": label,
        "score": scores[label],
        "scores": scores,
        "exit": {
            "layer": manifest.exit_layers[answer.exit_index],
            "layers": manifest.num_layers,
            "reason": answer.reason.label,
            "signal": None if math.isnan(answer.signal) else _short(answer.signal),
        },
    }


def _short(value: float) -> float:
    """Return a float32 without the digits that it does not have."""
    return float(f"{value:.7g}")


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
