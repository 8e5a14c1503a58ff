"""Rollouts under load: a bad candidate must go back by itself, a good one become the policy."""

import time
from typing import Final

from loadtest.http.client import Json
from loadtest.scenarios.scenario import Scenario

_EVERY_S, _RUNNING = 0.5, ("running", "paused")

_PLAN: Final[Json] = {
    "steps": [5, 25, 50, 100],
    "hold_s": 10,
    "min_answers": 120,
    "bounds": {"disagreement": 0.04, "layers": 3.0, "errors": 0.01},
    "audit_share": 1.0,
    "on_inconclusive": "promote",
}


def bad_candidate(scenario: Scenario) -> None:
    """Roll out a rule that leaves every text at layer 1."""
    _roll_out(scenario, {"rule": "layer", "layer": 1}, "failed")


def good_candidate(scenario: Scenario) -> None:
    """Roll out a certified target."""
    _roll_out(scenario, {"target": {"max_disagreement": 0.01}}, "promoted")


def _roll_out(scenario: Scenario, wish: Json, end: str) -> None:
    client, model = scenario.client, scenario.model["name"]
    live = client.policy(model)
    client.replace_policy(model, live, {"default": {"rule": "never"}})
    with scenario.load():
        began = time.monotonic()
        shown = client.start_rollout(model, {"policy": {"default": wish}, **_PLAN})
        while shown["state"] in _RUNNING and time.monotonic() < began + scenario.seconds:
            time.sleep(_EVERY_S)
            shown = client.rollout(model)
        took_s = time.monotonic() - began
    why = f": {shown['why']}" if shown.get("why") else ""
    told = f"{shown['state']} at {shown['percent']:g} % after {took_s:.0f} s{why}"
    scenario.notes.append(told)
    scenario.expect(shown["state"] == end, f"the rollout is {told}, and must be {end}")
