"""The sentence on what early exit gains, also when it gains nothing."""

from dataclasses import replace

from models.report.wording import better_than_full, gain_sentence, headline
from serve.policy.document import Policy
from serve.policy.target import Target, TargetChoice
from serve.rules import EntropyRule, NeverRule
from tests.support.recordings import analysed, margins, noisy

EASY, HARD = [9.0, 9.0, 9.0], [-0.1, -0.1, 9.0]


def sentence(rows: list[list[float]], gold: list[int]) -> str:
    return gain_sentence(analysed(margins(rows, gold)))


def test_a_gain_is_stated_with_its_interval() -> None:
    words = sentence([EASY] * 100 + [HARD] * 100, [1] * 200)
    assert words.startswith("hand-made on hand/made.tsv: early exit by entropy gains 2")
    assert "points of accuracy at equal mean depth" in words
    assert "95 % interval +" in words


def test_no_gain_is_stated_as_well() -> None:
    # Every exit says the same, so leaving early can neither gain nor lose.
    words = sentence([EASY, HARD[::-1], [-9.0] * 3], [1, 1, 1])
    assert "is not shown to gain anything" in words
    assert "which includes 0" in words


def test_a_loss_is_called_one() -> None:
    # The surer a text at the first exit, the more surely that exit is wrong.
    wrong = [[-9.0, 0.1, 9.0]] * 100
    right = [[0.2, 0.1, 9.0]] * 100
    words = sentence(wrong + right, [1] * 200)
    assert "early exit by entropy loses" in words


def test_a_single_exit_has_nothing_to_gain() -> None:
    assert "has a single exit" in sentence([[1.0], [2.0]], [0, 1])


def test_exits_that_no_rule_compares_are_not_called_a_single_one() -> None:
    seen = noisy("regression")
    traits = replace(seen.traits, exits=(1, 4))
    words = gain_sentence(analysed(replace(seen, traits=traits, logits=seen.logits[1:])))
    assert "no text can leave early, because rules for numbers compare an exit with" in words
    assert "single" not in words


def test_a_correlation_is_no_percentage() -> None:
    words = gain_sentence(analysed(noisy("regression")))
    assert "hundredths of Pearson" in words
    assert "early exit by patience" in words


def test_a_layer_that_is_better_than_full_depth_is_named() -> None:
    overthought = [[-9.0, 9.0, -9.0], [9.0, 9.0, 9.0]]
    found = analysed(margins(overthought, [1, 1]))
    words = (
        "hand-made: accuracy is 100.00 % if every text stops at layer 4, "
        "more than 50.00 % at full depth."
    )
    assert better_than_full(found) == words
    assert better_than_full(analysed(margins([EASY, HARD], [1, 1]))) is None


def test_the_headline_is_about_what_requests_without_exit_get() -> None:
    leave = {"soon": EntropyRule(threshold=0.1), "later": NeverRule()}
    recorded = margins([EASY] * 3 + [[9.0, 9.0, -9.0]], [1] * 4)
    words = headline(analysed(recorded, policy=Policy(default="soon", profiles=leave)))
    assert words == (
        "hand-made on hand/made.tsv: requests without `exit` (soon) run 2.00 of 6 layers in the "
        "mean, by entropy < 0.1; accuracy is 100.00 instead of 75.00 %; 25.00 % of the answers are "
        "others than full depth's."
    )
    assert headline(analysed(recorded, policy=Policy(default="later", profiles=leave))).endswith(
        "(later) run all 6 layers."
    )
    certified = Policy(default=TargetChoice(target=Target(max_disagreement=0.01)))
    assert "early exit by entropy" in headline(analysed(recorded, policy=certified))
