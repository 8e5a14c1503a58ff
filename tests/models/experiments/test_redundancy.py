"""How alike hidden states are."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from models.experiments.sections.redundancy import (
    Redundancy,
    States,
    cka,
    mean,
    redundancy,
    sentence,
    states_of,
)
from models.multi_exit import MultiExitModel
from serve.tokenization.tokenizer import Tokens
from tests.support.recordings import margins


def test_states_that_are_only_turned_and_scaled_are_the_same() -> None:
    draw = np.random.default_rng(0)
    states = draw.standard_normal((40, 8)) * np.arange(1, 9)
    turned, _ = np.linalg.qr(draw.standard_normal((8, 8)))
    assert cka(states, 3 * states @ turned + 1) == pytest.approx(1)


def test_independent_states_are_not_alike_although_they_are_wide() -> None:
    draw = np.random.default_rng(0)
    one, other = draw.standard_normal((2, 60, 400))
    assert abs(cka(one, other)) < 0.1


def test_alignment_of_many_texts_is_that_of_the_formula() -> None:
    draw = np.random.default_rng(0)
    one = draw.standard_normal((3000, 4)) * [3, 2, 1, 1]
    other = one @ draw.standard_normal((4, 5)) + draw.standard_normal((3000, 5))
    x, y = one - one.mean(axis=0), other - other.mean(axis=0)
    plain = np.linalg.norm(x.T @ y) ** 2 / (np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y))
    assert cka(one, other) == pytest.approx(plain, abs=0.01)


def test_states_are_those_of_transformers(make_model: Callable[..., MultiExitModel]) -> None:
    model = make_model()
    ids = [[2, 5, 9, 3], [2, 6, 3]]
    tokens = [Tokens(np.array(row), np.zeros(len(row), np.int64)) for row in ids]
    found = states_of(model, tokens)
    for place, row in enumerate(ids):
        with torch.inference_mode():
            hidden = model.encoder(torch.tensor([row]), output_hidden_states=True).hidden_states
        every = torch.stack(hidden)[:, 0].double().numpy()  # (1 + layers, tokens, width)
        assert np.allclose(found.means[:, place], every.mean(axis=1), atol=1e-5)
        norms = np.linalg.norm(every, axis=-1)
        cosines = (every[1:] * every[:-1]).sum(axis=-1) / (norms[1:] * norms[:-1])
        assert np.allclose(found.cosines[:, place], cosines.mean(axis=1), atol=1e-5)


def test_exits_are_compared_with_the_one_before() -> None:
    recorded = margins([[5, -5, 5], [5, 5, 5], [-5, 5, 5], [5, 5, 5]], [1, 1, 1, 1])
    draw = np.random.default_rng(0)
    states = States(draw.standard_normal((4, 4, 3)), draw.random((3, 4)))
    found = redundancy(recorded, states)
    assert found.changed[1:].tolist() == [0.5, 0.25]
    assert found.cosine == pytest.approx(states.cosines.mean(axis=1))


def test_sentence_tells_from_where_on_little_changes() -> None:
    found = Redundancy(np.array([np.nan, 0.1, 0.005]), np.ones(3), np.ones(3))
    assert "Tuned: from layer 3 of 3 on" in sentence("tuned", mean([found, found]))
