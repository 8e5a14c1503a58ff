"""The dialects that the server speaks: a further one is a package and a line."""

from collections.abc import Sequence
from typing import Final

from serve.api.route import Dialect
from serve.dialects.guardrails.detectors import DETECTORS
from serve.dialects.guardrails.litellm import LITELLM
from serve.dialects.guardrails.moderations import MODERATIONS
from serve.dialects.hf import HUGGING_FACE
from serve.dialects.kserve import KSERVE
from serve.dialects.oip.dialect import OIP
from serve.dialects.sagemaker import SAGEMAKER
from serve.dialects.tei.dialect import TEI
from serve.dialects.v1.dialect import V1
from serve.dialects.vllm import VLLM
from serve.errors import InvalidRequest

# This name stands for every dialect.
ALL: Final = "all"

# Our own is the last one: its paths are all.
_DIALECTS: Final = (
    *(HUGGING_FACE, OIP, KSERVE, TEI, SAGEMAKER, VLLM),
    *(DETECTORS, LITELLM, MODERATIONS),
    V1,
)


def choose_dialects(names: Sequence[str]) -> tuple[Dialect, ...]:
    """Return the dialects of these names.

    Raises:
        InvalidRequest: there is no such dialect, or none is chosen.
    """
    if list(names) == [ALL]:
        return _DIALECTS
    known = list(dict.fromkeys(dialect.name for dialect in _DIALECTS))
    if unknown := [name for name in names if name not in known]:
        raise InvalidRequest(
            f"dialects: there is no {unknown[0]!r}; there are {', '.join(known)}, or {ALL}"
        )
    if not names:
        raise InvalidRequest(f"dialects: name one of {', '.join(known)}, or {ALL}")
    return tuple(dialect for dialect in _DIALECTS if dialect.name in names)
