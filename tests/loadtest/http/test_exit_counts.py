import math

from loadtest.http.exit_counts import Exit, ExitCounts, exits_in_metrics, exits_in_reply, mean_layer

PAGE = """\
# TYPE offramp_exits_total counter
offramp_exits_total{layer="2",model="tiny",reason="confident",replica="a"} 3.0
offramp_exits_total{layer="2",model="tiny",reason="confident",replica="b"} 4.0
offramp_exits_total{layer="6",model="tiny",reason="final",replica="b"} 1.0
# TYPE offramp_layers_run_total counter
offramp_layers_run_total{model="tiny",replica="a"} 20.0
"""


def test_exits_of_all_replicas_add_up() -> None:
    expected = {Exit("tiny", 2, "confident"): 7, Exit("tiny", 6, "final"): 1}
    assert exits_in_metrics(PAGE) == expected


def test_every_text_of_a_reply_counts() -> None:
    results = [{"exit": {"layer": n, "reason": "confident"}} for n in (1, 3, 3)]
    counts = exits_in_reply({"model": "tiny", "results": results})
    assert counts == {Exit("tiny", 1, "confident"): 1, Exit("tiny", 3, "confident"): 2}


def test_mean_layer_weighs_by_answers() -> None:
    assert mean_layer(exits_in_metrics(PAGE)) == (2 * 7 + 6) / 8
    assert math.isnan(mean_layer(ExitCounts()))
