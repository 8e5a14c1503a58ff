import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.commands.yaml_text import read_patch, read_yaml, write_yaml
from serve.errors import InvalidRequest
from serve.policy.difference import difference

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


def test_numbers_and_names_mean_what_json_would() -> None:
    text = "target: {max_disagreement: 1e-3}\n2024: ~\n'off': 'on'\n"
    assert read_yaml(text, "it") == {
        "target": {"max_disagreement": 0.001},
        "2024": None,
        "off": "on",
    }


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: 1\nb: {c: 1, c: 2}", "line 2, column 11: "),
        ("a:\n\t- 1", "line 2, column 1: "),
        ("a: [1, 2\nb: 3", "line 2, column 2: "),
        ("a: !!python/name:os.system x", "line 1, column 4: "),
        ("? [1]\n: 2", "line 1, column 3: "),
        ("off: 1", "line 1, column 1: "),
        ("since: 2026-01-01", ""),
        ("a: 1e999", ""),
        ("&x [*x]", ""),
        ("[" * 900, ""),
    ],
)
def test_mistakes_are_found_by_their_line(text: str, place: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_yaml(text, "it")
    assert str(refused.value).startswith(f"it: {place}")


@pytest.mark.parametrize("name", ["guard-1.0", "a=b", 'said "no"', "back\\slash", "größer"])
def test_places_that_are_printed_are_read(name: str) -> None:
    [place] = difference({}, {"profiles": {name: {"rule": "never"}}}, "")
    [inner] = difference({"profiles": {}}, {"profiles": {name: {"rule": "never"}}})
    assert place == "profiles"
    assert read_patch([f"{inner}={{rule: never}}"]) == {"profiles": {name: {"rule": "never"}}}


@pytest.mark.parametrize("change", ["a", "a=", ".a=1", "a..b=1", 'a."b=1', 'a."b"c=1', "=1"])
def test_what_is_no_change_is_refused(change: str) -> None:
    with pytest.raises(InvalidRequest):
        read_patch([change])


def test_changes_are_merged_into_one_patch() -> None:
    changes = ["profiles.fast.target.max_disagreement=0.02", "profiles.old=null", "{default: fast}"]
    assert read_patch(changes) == {
        "profiles": {"fast": {"target": {"max_disagreement": 0.02}}, "old": None},
        "default": "fast",
    }
