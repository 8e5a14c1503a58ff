import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.errors import InvalidRequest
from serve.policy_cli.yaml_text import read_patch, read_yaml, write_yaml

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
# PyYAML loses a C1 control character in a name; no name of a policy has one.
TEXTS = st.text(st.characters(exclude_categories=("C", "Zl", "Zp")), max_size=8) | st.sampled_from(
    ["1e-3", "off", "null", "012", "1:30", "2026-01-01", "~", ".5", "<<", "=", "0x1F", "1_0"]
)
DOCUMENTS = st.recursive(
    SCALARS | TEXTS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=8
)


@given(DOCUMENTS)
def test_what_is_written_is_read(document: object) -> None:
    assert read_yaml(write_yaml(document), "it") == document


def test_yaml_means_what_json_would() -> None:
    text = "off: on\ntarget: {max_disagreement: 1e-3}\nsince: 2026-01-01\n1: ~\n"
    assert read_yaml(text, "it") == {
        "off": "on",
        "target": {"max_disagreement": 0.001},
        "since": "2026-01-01",
        "1": None,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: {c: 1, c: 2}", "it: line 2, column 11: 'c' comes twice"),
        ("a:\n\t- 1", "it: line 2, column 1: found character '\\t'"),
        ("a: [1, 2\nb: 3", "it: line 2, column 2: expected ',' or ']'"),
        ("a: !!python/name:os.system x", "it: line 1, column 4: could not determine"),
        ("? [1]\n: 2", "it: line 1, column 3: this cannot be a name"),
        ("a: 1e999", "it: Out of range float"),
        ("&x [*x]", "it: Circular"),
        ("[" * 900, "it: maximum recursion depth"),
    ],
)
def test_mistakes_are_found_by_their_line(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_yaml(text, "it")
    assert str(refused.value).startswith(message)


def test_changes_are_merged_into_one_patch() -> None:
    changes = ["profiles.fast.target.max_disagreement=0.02", "profiles.old=null", "{default: fast}"]
    assert read_patch(changes) == {
        "profiles": {"fast": {"target": {"max_disagreement": 0.02}}, "old": None},
        "default": "fast",
    }
