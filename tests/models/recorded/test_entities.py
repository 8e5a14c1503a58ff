"""Entities of BIO tags, as conlleval counts them."""

import pytest

from models.recorded.answers import Entity, are_entity_tags, entities_of


@pytest.mark.parametrize(
    ("tags", "entities"),
    [
        ("O O", []),
        ("B-x I-x O", [Entity(0, 2, "x")]),
        ("O B-x", [Entity(1, 2, "x")]),
        ("B-x B-x", [Entity(0, 1, "x"), Entity(1, 2, "x")]),
        ("B-x I-y", [Entity(0, 1, "x"), Entity(1, 2, "y")]),
        ("I-x I-x O I-x", [Entity(0, 2, "x"), Entity(3, 4, "x")]),
        ("B-creative-work I-creative-work", [Entity(0, 2, "creative-work")]),
        ("", []),
    ],
)
def test_entities_are_runs_of_one_type(tags: str, entities: list[Entity]) -> None:
    assert entities_of(tags.split()) == entities


def test_parts_of_speech_are_no_entity_tags() -> None:
    assert are_entity_tags(["O", "B-person", "I-person"])
    assert not are_entity_tags(["NOUN", "VERB"])
    assert not are_entity_tags(["O", "B-person", "VERB"])
