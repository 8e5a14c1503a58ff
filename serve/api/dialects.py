"""The dialects that the server speaks: a further one is a file and a line."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fastapi import FastAPI

from serve.api.context import AppContext
from serve.api.dialect import ALL, V1, Dialect
from serve.api.routes.classify import add_classify_route
from serve.api.routes.guardrails import (
    DETECTORS,
    LITELLM,
    add_detector_route,
    add_litellm_route,
)
from serve.api.routes.hugging_face import HUGGING_FACE, add_hugging_face_routes
from serve.api.routes.kserve import KSERVE, add_kserve_route
from serve.api.routes.oip import OIP, add_oip_routes
from serve.api.routes.tei import TEI, add_tei_routes
from serve.api.routes.vllm import VLLM, add_vllm_route
from serve.errors import InvalidRequest


class Spoken(NamedTuple):
    """A dialect and what adds its routes."""

    dialect: Dialect
    add_routes: Callable[[FastAPI, AppContext], None]


_SPOKEN = (
    Spoken(HUGGING_FACE, add_hugging_face_routes),
    Spoken(OIP, add_oip_routes),
    Spoken(KSERVE, add_kserve_route),
    Spoken(TEI, add_tei_routes),
    Spoken(VLLM, add_vllm_route),
    Spoken(DETECTORS, add_detector_route),
    Spoken(LITELLM, add_litellm_route),
    Spoken(V1, add_classify_route),  # the last one: its paths are all
)


def choose_dialects(names: Sequence[str]) -> tuple[Spoken, ...]:
    """Return the dialects of these names.

    Raises:
        InvalidRequest: there is no such dialect, or none is chosen.
    """
    if list(names) == [ALL]:
        return _SPOKEN
    known = list(dict.fromkeys(spoken.dialect.name for spoken in _SPOKEN))
    if unknown := [name for name in names if name not in known]:
        raise InvalidRequest(
            f"dialects: there is no {unknown[0]!r}; there are {', '.join(known)}, or {ALL}"
        )
    if not names:
        raise InvalidRequest(f"dialects: name one of {', '.join(known)}, or {ALL}")
    return tuple(spoken for spoken in _SPOKEN if spoken.dialect.name in names)
