from typing import Any

from loadtest.bench.gpu.verdict import verdict

SHAPES = ((1, 32), (8, 32), (32, 128))


def document(whole_ms: dict[str, list[float]], **until_ms: list[list[float]]) -> dict[str, Any]:
    """Return a document of three shapes: whole models, and times until each exit by its exits."""
    sizes = [{"rows": rows, "tokens": tokens} for rows, tokens in SHAPES]
    ms = [
        {"contender": name, **size, "ms": each}
        for name, times in whole_ms.items()
        for size, each in zip(sizes, times, strict=True)
    ]
    subsets = [
        {**size, "active": [int(layer) for layer in active.split("_")[1:]], "until_ms": times}
        for active, lines in until_ms.items()
        for size, times in zip(sizes, lines, strict=True)
    ]
    return {"device": "cuda", "steps": {"baselines": {"ms": ms}, "subsets": {"ms": subsets}}}


WHOLE = {"one_graph": [0.7, 0.7, 2.7], "cuda_graph": [0.5, 0.5, 2.5]}


def test_leaving_pays_from_a_batch_on_up_to_a_layer() -> None:
    found = verdict(document(WHOLE, a_4_8_12=[[0.6, 1, 1.5], [0.4, 0.9, 1.2], [0.9, 2.4, 4]]))
    assert found["sentence"] == (
        "on this GPU leaving pays from batch 8 x 32 on up to layer 4 (up to 8 at some), "
        "active exits 4, 8, 12"
    )
    assert [line["pays_up_to_layer"] for line in found["table"]] == [None, 4, 8]
    assert found["table"][0]["fastest_whole"] == "cuda_graph"


def test_the_fastest_whole_model_is_what_counts() -> None:
    until = [[0.6, 1.2], [0.6, 1.2], [2.6, 5]]
    slow = verdict(document({"one_graph": WHOLE["one_graph"]}, a_6_12=until))
    assert "leaving pays from batch 1 x 32 on up to layer 6, active exits 6, 12" in slow["sentence"]
    assert "never pays" in verdict(document(WHOLE, a_6_12=until))["sentence"]


def test_the_exits_that_pay_most_are_named() -> None:
    few = [[0.6, 1.2, 1.8], [0.4, 1.2, 1.8], [0.9, 2.4, 4]]
    fewer = [[0.4, 0.8], [0.4, 0.8], [1.4, 2.9]]
    found = verdict(document(WHOLE, a_4_8_12=few, a_6_12=fewer, a_12=[[0.8], [0.8], [2.8]]))
    assert found["sentence"] == (
        "on this GPU leaving pays from batch 1 x 32 on up to layer 6, active exits 6, 12"
    )


def test_leaving_may_pay_at_small_batches_only() -> None:
    found = verdict(document(WHOLE, a_6_12=[[0.4, 0.8], [0.6, 1.2], [2.6, 5]]))
    assert found["sentence"] == (
        "on this GPU leaving pays only at batch 1 x 32 (up to layer 6), active exits 6, 12"
    )


def test_a_run_that_was_cut_short_says_so() -> None:
    said = "on this GPU too little was measured to say whether leaving pays"
    assert verdict({"device": "cuda"})["sentence"] == said
    cut = document(WHOLE)
    assert verdict(cut) == {"table": [], "sentence": said}


def test_throughput_has_its_own_words() -> None:
    made = document(WHOLE, a_6_12=[[0.6, 1.2], [0.6, 1.2], [2.6, 5]])
    made["steps"]["throughput"] = {
        "rows_per_s": [
            {"whole": 100.0, "every_exit": 84.0, "few_exits": 80.0},
            {"whole": 100.0, "every_exit": 120.0, "few_exits": 151.0},
            {"whole": None, "every_exit": 1.0, "few_exits": 1.0},
        ]
    }
    assert verdict(made)["sentence"].endswith(
        "under full load it answers 0.84 to 1.51 times as many rows as the whole model"
    )
