"""Makes the tensors that a request has asked for of a model's answers, and writes them."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve.api.response import JSON, Response
from serve.api.shown import Function, exit_headers, rounded, score_rows, short, to_json
from serve.classifier.classification import Classification
from serve.classifier.classifier import Classifier
from serve.dialects.oip.infer_body import HEADER_LENGTH, packed
from serve.dialects.oip.schemas import BYTES, FP32, INT32, VERSION, output_specs
from serve.dialects.oip.tensors import Tensor, quoted, to_bytes
from serve.errors import InvalidRequest, InvalidTensor
from serve.rules.signals import entropy

# Outputs whose elements are scores of labels.
_OF_LABELS: Final = ("probabilities", "logits")


class WantedOutput(NamedTuple):
    """An output that a request names.

    Attributes:
        class_count: how many of the best classes are asked for, as texts `score:index:label`; 0
            asks for the output itself.
        binary: whether the elements follow the JSON.
    """

    name: str
    class_count: int = 0
    binary: bool = False


def check_wanted(classifier: Classifier, wanted: Sequence[WantedOutput]) -> None:
    """Check the outputs that a request names.

    Raises:
        InvalidTensor: the model has no such output, or it is named twice, or has no classes.
    """
    known = [spec.name for spec in output_specs(classifier)]
    for name, class_count, _ in wanted:
        if name not in known:
            raise InvalidTensor(
                f"outputs: there is no {quoted(name)}; there are {', '.join(known)}"
            )
        if class_count and (name not in _OF_LABELS or classifier.entities is not None):
            raise InvalidTensor(
                f"{name}: classification is for scores of whole texts: {' or '.join(_OF_LABELS)}"
            )
    if len({each.name for each in wanted}) < len(wanted):
        raise InvalidTensor("outputs: an output is there twice")


def output_tensors(answered: Classification, wanted: Sequence[WantedOutput]) -> list[Tensor]:
    """Return the outputs, in order; numbers are those of `/v1/classify` in float32."""
    arrays = _Arrays(answered)
    found = []
    for name, class_count, _ in wanted:
        values = getattr(arrays, name)
        if class_count:
            found.append(_as_classes(name, values, class_count, arrays.labels))
        elif isinstance(values, list):
            found.append(Tensor(name, BYTES, (len(values), 1), values))
        else:
            datatype = FP32 if values.dtype == np.float32 else INT32
            found.append(Tensor(name, datatype, values.shape, values))
    return found


class _Arrays:
    """The outputs of a request by name; of those that are texts, lists."""

    def __init__(self, answered: Classification) -> None:
        self._manifest = answered.classifier.bundle.manifest
        self._lengths = answered.lengths
        self._answers = answered.answers
        self.labels = self._manifest.labels

    @cached_property
    def probabilities(self) -> NDArray[np.float32]:  # (rows, labels)
        function: Function = "softmax" if self._manifest.task == "single_label" else "sigmoid"
        return score_rows(self._answers, function)

    @property
    def label(self) -> list[str]:
        return [self.labels[i] for i in self._chosen]

    @property
    def confidence(self) -> NDArray[np.float32]:
        return _column([p[i] for p, i in zip(self.probabilities, self._chosen, strict=True)], "<f4")

    @property
    def entropy(self) -> NDArray[np.float32]:
        if any(answer.scores is not None for answer in self._answers):
            raise InvalidRequest("entropy: a text that was cut into windows has no logits")
        return _column([entropy(answer.logits) for answer in self._answers], "<f4")

    @property
    def logits(self) -> NDArray[np.float32]:
        if self._manifest.task != "token":
            return np.array([answer.logits for answer in self._answers])
        longest = max(len(answer.logits) for answer in self._answers)
        padded = np.zeros((len(self._answers), longest, len(self.labels)), "<f4")
        for row, answer in zip(padded, self._answers, strict=True):
            row[: len(answer.logits)] = answer.logits
        return padded

    @property
    def value(self) -> NDArray[np.float32]:
        return _column([answer.logits[0] for answer in self._answers], "<f4")

    @property
    def num_tokens(self) -> NDArray[np.int32]:
        return _column(list(self._lengths), "<i4")

    @property
    def exit_layer(self) -> NDArray[np.int32]:
        layer_of = self._manifest.traits.layer_of
        return _column([layer_of(answer.exit_index) for answer in self._answers], "<i4")

    @property
    def exit_reason(self) -> list[str]:
        return [answer.reason.label for answer in self._answers]

    @cached_property
    def _chosen(self) -> list[int]:
        """The label of each row: a voting rule may choose another than the likeliest."""
        return [
            answer.label if answer.label >= 0 else int(p.argmax())
            for answer, p in zip(self._answers, self.probabilities, strict=True)
        ]


def _column(values: Sequence[Any], datatype: str) -> NDArray[Any]:
    return np.array(values, datatype).reshape(-1, 1)


def _as_classes(
    name: str, scores: NDArray[np.float32], class_count: int, labels: Sequence[str]
) -> Tensor:
    """Return the best classes of each row, the best first, as `score:index:label`."""
    texts = [
        f"{short(row[i])}:{i}:{labels[i]}"
        for row in np.nan_to_num(scores)  # infinite logits become the largest number
        for i in (-row).argsort(kind="stable")[:class_count]
    ]
    return Tensor(name, BYTES, (len(scores), len(texts) // len(scores)), texts)


def answer_parameters(answered: Classification) -> dict[str, Any]:
    """Return the parameters of an answer; what is an object is JSON in a text."""
    found: dict[str, Any] = {
        "policy_version": answered.policy_version,
        "score_scale": answered.classifier.scores.score_scale,
    }
    if resolution := answered.resolution:
        found["exit_rule"] = resolution.texts["exit_rule"]
        found["certificate"] = resolution.texts["certificate"]
    if answered.live.arm:
        found["arm"] = answered.live.arm.name
    if degraded := answered.degraded:
        found |= {"degraded": True, "degraded_by": ",".join(degraded)}
    return found


def write(
    wanted: list[WantedOutput], request_id: str | None, accepted: str, answered: Classification
) -> Response:
    """Return the answer; `accepted` is the request's Accept-Encoding."""
    described, behind = [], []
    for tensor, each in zip(output_tensors(answered, wanted), wanted, strict=True):
        raw = to_bytes(tensor) if each.binary else None
        described.append(_describe(tensor, raw))
        if raw is not None:
            behind.append(raw)
    head: dict[str, Any] = {"model_name": answered.classifier.name, "model_version": VERSION}
    if request_id is not None:
        head["id"] = request_id
    head["parameters"] = answer_parameters(answered)
    json = b'%b,"outputs":[%b]}' % (to_json(head)[:-1], b",".join(described))
    headers, media_type = exit_headers(answered), JSON
    if behind:
        headers[HEADER_LENGTH], media_type = str(len(json)), "application/octet-stream"
    body, more = packed(b"".join((json, *behind)), accepted)
    return Response(body, headers | more, media_type)


def _describe(tensor: Tensor, raw: bytes | None) -> bytes:
    """Return an output's JSON: with its elements, or the number of bytes that hold them."""
    head: dict[str, Any] = {
        "name": tensor.name,
        "datatype": tensor.datatype,
        "shape": list(tensor.shape),
    }
    if raw is not None:
        return to_json({**head, "parameters": {"binary_data_size": len(raw)}})
    # Row by row: one call of the encoder holds the interpreter's lock all the time.
    rows = [to_json(_row(tensor, i))[1:-1] for i in range(tensor.shape[0])]
    return b'%b,"data":[%b]}' % (to_json(head)[:-1], b",".join(rows))


def _row(tensor: Tensor, i: int) -> Any:
    """Return the elements of a row as `/v1/classify` writes them."""
    if isinstance(tensor.values, list):
        width = tensor.shape[1]
        return tensor.values[i * width : (i + 1) * width]
    row = tensor.values[i].ravel()
    if tensor.name == "logits":
        return rounded(row)
    if row.dtype == np.float32:
        return [short(value) for value in row]
    return row
