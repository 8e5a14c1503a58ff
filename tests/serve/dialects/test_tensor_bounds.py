"""Rows, elements and digits are compared with their bounds before any element is read."""

import pytest

from serve.api.json_decoding import MAX_DIGITS, parse_json
from serve.dialects.oip.request import tensors_in
from serve.dialects.oip.schemas import InferInput, InferRequest
from serve.dialects.oip.tensors import read_tensor
from serve.errors import InvalidTensor, MalformedBody, TooManyInputs


def test_a_tensor_beyond_a_full_queue_is_refused_by_its_shape() -> None:
    with pytest.raises(InvalidTensor, match="at most 131072 elements, not 524032"):
        read_tensor("input_ids", "INT64", [256, 2047], ["not looked at"])


def test_too_many_rows_are_refused_by_the_shape() -> None:
    given = InferInput(name="input_ids", datatype="INT64", shape=[300, 2], data=["not looked at"])
    with pytest.raises(TooManyInputs, match="300 texts, at most 256"):
        tensors_in(InferRequest(inputs=[given]), 256)


@pytest.mark.parametrize("digits", [MAX_DIGITS, MAX_DIGITS + 1])
def test_large_bodies_have_no_number_of_many_digits(digits: int) -> None:
    body = b'{"text": "%b", "ids": [%b]}' % (b"1" * 20_000, b"9" * digits)
    if digits <= MAX_DIGITS:
        assert parse_json(body)["ids"] == [int("9" * digits)]
        return
    with pytest.raises(MalformedBody, match="more than 20 digits"):
        parse_json(body)
