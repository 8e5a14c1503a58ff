from typing import Any

import pytest
from pydantic import ValidationError

from serve.policy.audit import Audit, Guard
from serve.policy.document import Policy

URL = "https://alerts.example.com/offramp?team=a"


def test_one_percent_is_audited_where_the_policy_does_not_say() -> None:
    policy = Policy.model_validate({"default": {"rule": "never"}})
    assert policy.audit == Audit(share=0.01, max_queue_ms=100)
    assert policy.guard == Guard(on_broken_promise="alert", delta=0.01, webhook=None)


def test_what_is_as_by_default_is_left_out_of_documents() -> None:
    """Replicas compare hashes of documents, also with those of older releases."""
    document = {"audit": {"share": 0.01}, "guard": {"on_broken_promise": "alert"}}
    assert Policy.model_validate(document).model_dump_json() == Policy().model_dump_json()
    assert not Policy().model_dump().keys() & document.keys()


def test_what_is_stored_is_read_as_it_was_written() -> None:
    document = {
        "audit": {"share": 0, "max_queue_ms": 5},
        "guard": {"on_broken_promise": "safer", "delta": 0.1, "webhook": URL},
    }
    policy = Policy.model_validate(document)
    assert Policy.model_validate_json(policy.model_dump_json()) == policy
    assert policy.model_dump(include={"audit", "guard"}) == document


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("audit", {"share": -0.1}),
        ("audit", {"share": 1.1}),
        ("audit", {"share": "1"}),
        ("audit", {"share": float("nan")}),
        ("audit", {"max_queue_ms": 0}),
        ("audit", {"max_queue_ms": float("inf")}),
        ("audit", {"rate": 1}),
        ("guard", {"on_broken_promise": "stop"}),
        ("guard", {"delta": 0}),
        ("guard", {"delta": 0.5}),
        ("guard", {"delta": 5}),
        ("guard", {"webhook": "ftp://example.com"}),
        ("guard", {"webhook": "example.com"}),
        ("guard", {"webhook": "http://"}),
        ("guard", {"webhook": "http://[1"}),
        ("guard", {"webhook": "http://a b.example.com"}),
        ("guard", {"webhook": "http://example.com:99999"}),
        ("guard", {"webhook": "http://example.com/\n"}),
        ("guard", {"webhook": "http://example.com/" + 2048 * "a"}),
        ("guard", {"webhook": "http://user:secret@example.com"}),
    ],
)
def test_what_makes_no_sense_is_refused(field: str, value: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        Policy.model_validate({field: value})
    assert caught.value.errors()[0]["loc"][:2] == (field, next(iter(value)))
