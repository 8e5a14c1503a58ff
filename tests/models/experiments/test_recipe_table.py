"""The table of recipes and its sentences, of a made-up grid."""

from models.experiments.recipe_table import Figures, Row, recipe_table, sentences


def of_seeds(half: float, layers: float, processor_s: float) -> dict[int, Figures]:
    """Return three seeds whose figures differ by the seed as those of every other recipe do."""
    return {
        seed: Figures(
            [0.7, 0.8, 0.85, 0.86, 0.87, 0.88 + seed / 100],
            half + seed / 100,
            layers + seed / 10,
            0.011,
            processor_s * seed,
        )
        for seed in (1, 2, 3)
    }


GRID = {
    Row("joint"): of_seeds(0.80, 4.0, 100.0),
    Row("helps"): of_seeds(0.82, 3.5, 150.0),
    Row("useless"): of_seeds(0.79, 4.2, 200.0),
}


def test_lines_hold_means_intervals_and_the_ratio_of_times() -> None:
    head, _, joint, helps, _ = recipe_table(GRID, 6).splitlines()
    assert head == ("| recipe | exit 6 | half depth | layers at 1 % | % other there | time |")
    assert joint == ("| joint | 90.0 ± 2.5 | 82.0 ± 2.5 | 4.20 ± 0.25 | 1.1 | 1.00 |")
    assert helps.endswith("| 84.0 ± 2.5 | 3.70 ± 0.25 | 1.1 | 1.50 |")


def test_what_helped_and_what_did_not_follows_from_the_intervals() -> None:
    text = "\n".join(sentences(GRID))
    assert "At half depth: better are helps (+2.0 ± 0.0 points); worse are useless (-1.0" in text
    assert "At the last exit: no difference is shown." in text
    assert "other answers: better are helps (-0.50 ± 0.00 layers); worse are useless (+0.20" in text
    assert "(of 6 comparisons, one in" in text


def test_recipes_with_few_seeds_are_named_and_show_nothing() -> None:
    few = {row: {1: found[1]} for row, found in GRID.items()}
    assert list(sentences(few)) == ["Fewer than 3 seeds so far: joint (1), helps (1), useless (1)."]
    assert "| 81.0 |" in recipe_table(few, 6)
