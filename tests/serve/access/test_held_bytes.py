import pytest
from hypothesis import given
from hypothesis import strategies as st

import serve.access.held_bytes
from serve.access.held_bytes import FREE_BYTES, Held, HeldBytes, What
from serve.errors import AnswersWait, Overloaded, OwnAnswersWait, RateLimited

KIB = 1024
MOST = 160 * KIB


def size(counted: int) -> int:
    """Return the size of a body of which so much is counted."""
    return FREE_BYTES + counted


@pytest.mark.parametrize(
    ("what", "own_error", "error"),
    [("bodies", RateLimited, Overloaded), ("answers", OwnAnswersWait, AnswersWait)],
)
def test_a_client_has_half_of_the_room_and_all_have_the_whole(
    what: What, own_error: type[Overloaded], error: type[Overloaded]
) -> None:
    held_bytes = HeldBytes(MOST, what)
    held_bytes.hold("a", FREE_BYTES)
    assert not held_bytes.num_bytes
    first = held_bytes.hold("a", size(MOST // 4))
    second = held_bytes.hold("a", FREE_BYTES)
    held_bytes.grow(second, size(MOST // 4))
    held_bytes.grow(second, FREE_BYTES)
    with pytest.raises(own_error):
        held_bytes.check("a")
    with pytest.raises(own_error):
        held_bytes.hold("a", size(1))
    held_bytes.check("b")
    with held_bytes.holding("b", size(MOST // 2)), pytest.raises(error) as raised:
        held_bytes.hold("c", size(1))
    assert type(raised.value) is error
    for held in (first, second, second):
        held_bytes.release(held)
    held_bytes.check("a")
    assert not held_bytes.num_bytes


def test_a_single_one_may_be_larger_than_half_and_than_the_bound() -> None:
    held_bytes = HeldBytes(MOST, "answers")
    larger = held_bytes.hold("a", size(MOST // 2 + KIB))
    held_bytes.hold("b", size(KIB))
    held_bytes.release(larger)
    with pytest.raises(AnswersWait):
        held_bytes.hold("a", size(2 * MOST))
    alone = HeldBytes(MOST, "answers")
    alone.hold("a", size(2 * MOST))
    with pytest.raises(AnswersWait):
        alone.hold("b", size(1))


def test_the_answer_that_has_waited_longest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    held_bytes, given_up = HeldBytes(MOST, "answers"), list[str]()
    held = {
        name: held_bytes.hold(name, size(MOST // 4), lambda name=name: given_up.append(name))  # type: ignore[misc]
        for name in "abc"
    }
    kept = held_bytes.hold("kept", size(MOST // 4))
    held_bytes.moved(held["a"])
    with pytest.raises(AnswersWait):
        held_bytes.hold("d", size(1))
    monkeypatch.setattr(serve.access.held_bytes, "STALLED_S", 0.0)
    held_bytes.hold("d", size(MOST // 2))
    assert (given_up, held_bytes.num_given_up) == (["b", "c"], 2)
    held_bytes.hold("e", size(MOST // 4))
    with pytest.raises(AnswersWait):
        held_bytes.hold("f", size(1))
    assert given_up == ["b", "c", "a"]
    assert kept.num_bytes == MOST // 4


@given(
    steps=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 3 * MOST), st.sampled_from("hgmr"))
    )
)
def test_what_is_counted_is_what_is_held_and_never_above_the_bound(
    steps: list[tuple[str, int, str]],
) -> None:
    held_bytes, held = HeldBytes(MOST, "bodies"), list[Held]()
    for client, num_bytes, step in steps:
        try:
            if step == "h" or not held:
                held.append(held_bytes.hold(client, num_bytes))
            elif step == "g":
                held_bytes.grow(held[num_bytes % len(held)], num_bytes)
            elif step == "m":
                held_bytes.moved(held[num_bytes % len(held)])
            else:
                held_bytes.release(held.pop(num_bytes % len(held)))
        except Overloaded:
            pass
        assert held_bytes.num_bytes == sum(each.num_bytes for each in held) <= MOST
    for each in held:
        held_bytes.release(each)
    assert not held_bytes.num_bytes
