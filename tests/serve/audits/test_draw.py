import math
from itertools import pairwise

import pytest

from serve.audits.draw import Draw


def drawn(draw: Draw, sizes: list[int], share: float) -> list[int]:
    """Return the places of drawn texts among all texts."""
    found, first = [], 0
    for size in sizes:
        found += [first + place for place in draw.places(size, share)]
        first += size
    return found


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("share", [0.01, 0.3])
def test_every_text_is_drawn_with_the_same_probability(size: int, share: float) -> None:
    num_texts = 210_000 // size * size
    found = drawn(Draw(b"any key"), [size] * (num_texts // size), share)
    spread = math.sqrt(share * (1 - share) / num_texts)
    assert abs(len(found) / num_texts - share) < 4 * spread
    in_first_half = sum(place % size < (size + 1) // 2 for place in found) / len(found)
    assert abs(in_first_half - (size + 1) // 2 / size) < 4 / math.sqrt(len(found))


def test_one_drawn_text_says_nothing_of_the_next() -> None:
    found = drawn(Draw(b"any key"), [1] * 100_000, 0.2)
    next_too = sum(b - a == 1 for a, b in pairwise(found))
    assert abs(next_too / len(found) - 0.2) < 0.02


def test_the_draw_knows_requests_by_number_and_size_alone_and_has_a_key_of_its_own() -> None:
    sizes = [1, 30, 2, 500] * 50
    assert drawn(Draw(b"key"), sizes, 0.05) == drawn(Draw(b"key"), sizes, 0.05)
    assert drawn(Draw(), sizes, 0.05) != drawn(Draw(), sizes, 0.05)


def test_share_of_none_and_of_all() -> None:
    draw = Draw(b"key")
    assert drawn(draw, [3, 1], 0.0) == []
    assert drawn(draw, [3, 1], 1.0) == [0, 1, 2, 3]
    assert drawn(draw, [3, 1], 0.0) == []


def test_a_new_share_holds_from_the_next_request_on() -> None:
    draw = Draw(b"key")
    drawn(draw, [1] * 1000, 1e-9)
    assert len(drawn(draw, [1] * 1000, 0.5)) > 400
