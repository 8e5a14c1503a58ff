from loadtest.load.sentences import make_sentences


def test_lengths_are_those_of_the_data_set() -> None:
    lengths = [len(sentence.split()) for sentence in make_sentences(5000, seed=1)]
    assert min(lengths) >= 1
    assert max(lengths) <= 48
    assert 18.5 < sum(lengths) / len(lengths) < 20.5


def test_same_seed_gives_the_same_sentences() -> None:
    assert make_sentences(20, seed=1) == make_sentences(20, seed=1)
    assert make_sentences(20, seed=1) != make_sentences(20, seed=2)
