"""SageMaker's and MLflow's routes: bodies of TEI or, with parameters, of Hugging Face's toolkit."""

from typing import Annotated, Any

from pydantic import Discriminator, RootModel, Tag

from serve.api.context import AppContext
from serve.api.request import Request
from serve.api.response import Response
from serve.api.route import TRUNCATE, Dialect, Route
from serve.api.routes.operations import NOT_READY
from serve.dialects.hf import Answer, HuggingFaceRequest, classify_as_pipeline
from serve.dialects.tei.dialect import TEI, TeiPrediction, TeiRequest, health, predict
from serve.dialects.tei.model import TAG

_TEI, _HUGGING_FACE = "<tei>", "<hf>"


def _kind(value: Any) -> str:
    given = value if isinstance(value, dict) else {}
    return _HUGGING_FACE if given.keys() & {"parameters", "options"} else _TEI


class Invocation(
    RootModel[
        Annotated[
            Annotated[TeiRequest, Tag(_TEI)] | Annotated[HuggingFaceRequest, Tag(_HUGGING_FACE)],
            Discriminator(_kind),
        ]
    ]
):
    """A request of TEI's clients, or of Hugging Face's with `parameters` or `options`."""


async def invoke(context: AppContext, request: Request, body: Invocation) -> Response:
    """Classify with the only model: as `/predict`, or with `parameters` or `options` as `/`.

    Labels of a single text are a list then, as transformers' pipelines give them.
    """
    asked = body.root
    if isinstance(asked, HuggingFaceRequest):
        return await classify_as_pipeline(context, request, asked)
    return await predict(context, request, asked)


SAGEMAKER = Dialect(
    TEI.name,
    TEI.error_body,
    TEI.error_schema,
    [
        Route(
            "POST",
            "/invocations",
            invoke,
            "classify",
            Invocation,
            tag=TAG,
            shown=list[TeiPrediction] | list[list[TeiPrediction]] | Answer,
        ),
        Route("GET", "/ping", health, None, probe=True, tag=TAG, errors=NOT_READY),
    ],
    words={TRUNCATE: '"truncate": true, or "parameters": {"truncation": true}'},
)
