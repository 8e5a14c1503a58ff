"""The tab of what the ladder promises and what audits say of it, in a real browser."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.serve.api.conftest import servers
from tests.serve.console.conftest import OpenPage
from tests.serve.support.ladders import certificate, certify, decisions, ladder, rung
from tests.serve.support.live_server import LiveServer, serving_bundles
from tests.serve.support.planted_shift import RUNGS, Traffic
from tests.support.patience import until

__all__ = ["servers"]

FAST: dict[str, Any] = {
    "default": "fast",
    "profiles": {"fast": {"target": {"max_disagreement": 0.03}}, "exact": {"rule": "never"}},
    "audit": {"share": 1.0, "max_queue_ms": 60_000.0},
}

expect.set_options(timeout=30_000)


@pytest.fixture
def certified(bundle_folder: Path, tmp_path: Path) -> Iterator[LiveServer]:
    """Return a server whose model has a ladder with decisions, and two rules for one bound."""
    folder = Path(shutil.copytree(bundle_folder, tmp_path / "tiny"))
    rungs = ladder()["rungs"]
    slower = rung(
        {"rule": "entropy", "threshold": 0.1},
        (0.1, 0.1, 0.4, 0.4),
        0.003,
        certificate("disagreement", 0.01, 0.003),
    )
    made = {"rungs": [*rungs[:2], slower, *rungs[2:]], "decisions": decisions()}
    with serving_bundles(certify(folder, "fp32", **made)) as live:
        yield live


def curve(page: Page) -> str:
    """Return what the curve says to those who do not see it."""
    drawn = page.get_by_role("img", name="The cheapest certified rules")
    drawn.wait_for()
    return drawn.get_attribute("aria-label") or ""


def counted(server: LiveServer, drawn: int) -> dict[str, Any] | None:
    """Return what audits say of a profile, once all drawn texts are audited or skipped."""
    found: dict[str, Any] = server.http.get("/v1/models/tiny/quality").json()["profiles"]["fast"]
    return found if found["audits"] + found["skipped"] == drawn else None


def test_curve_has_the_cheapest_rule_of_each_bound_and_the_live_profiles(
    open_page: OpenPage, certified: LiveServer
) -> None:
    certified.put_policy(FAST).raise_for_status()
    page = open_page(certified, "quality")
    expect(page.locator("g.marks")).to_contain_text("fast (default)")
    steps = ((0, 4), (0.5, 3.6), (1, 2.8), (3, 2))
    assert "; ".join(f"at most {b} %: {layers} layers" for b, layers in steps) in curve(page)
    assert "fast (default) at 3 % and 2 layers" in curve(page)
    page.get_by_label("What is promised").select_option("metric")
    expect(page.locator("g.marks")).to_contain_text("exact")
    assert "at most 0.5 %: 2.8 layers; at most 2 %: 2 layers" in curve(page)
    page.get_by_label("What is promised").select_option("missed negative 0.8")
    assert "at most 1 %: 1.5 layers" in curve(page)
    page.get_by_label("ms", exact=True).check()
    assert "layers" not in curve(page)
    page.get_by_text("All 4 rules").click()
    rules = page.get_by_role("region", name="All rules of the ladder").get_by_role("row")
    expect(rules).to_have_count(5)


def test_rule_is_told_that_is_pointed_at(open_page: OpenPage, certified: LiveServer) -> None:
    page = open_page(certified, "quality")
    page.locator("g.certified circle:not(.other)").last.hover(force=True)
    expect(page.locator(".pointed-at")).to_contain_text("entropy 0.5: 2 layers")
    expect(page.locator(".pointed-at")).to_contain_text("certified for 3 %; 2 % seen")


def test_broken_promise_is_shown_while_the_page_is_open(
    open_page: OpenPage, bundle_folder: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(bundle_folder, tmp_path / "tiny"))
    with serving_bundles(certify(folder, "fp32", rungs=RUNGS)) as live:
        traffic = Traffic(live)
        live.put_policy(FAST).raise_for_status()
        page = open_page(live, "quality")
        fast = page.get_by_role("region", name="fast", exact=True)
        expect(fast).to_contain_text("no text has been audited yet")
        expect(page.locator(".profiles")).not_to_contain_text("exact")
        traffic.send(20, strange=0)
        expect(fast).to_contain_text("0 of 20 audits: 0 %")
        expect(fast.locator(".state")).to_contain_text("watching")
        traffic.send(200)
        expect(fast.locator(".state")).to_contain_text("broken")
        expect(page.locator(".figure.bad", has_text="Broken")).to_contain_text("an alert follows")
        found = until(lambda: counted(live, 220))
        lost = found["promises"][0]["lost"]
        expect(fast).to_contain_text(f"{lost} of {found['audits']} audits")
        expect(fast.get_by_role("row", name="1 100 %")).to_contain_text(str(lost))
        assert not Axe().run(page).response["violations"]


@pytest.mark.parametrize("tab", ["quality", "models"])
def test_models_of_every_task_are_shown(open_page: OpenPage, servers: LiveServer, tab: str) -> None:
    page = open_page(servers, tab)
    for model in servers.http.get("/v1/models").json()["models"]:
        page.get_by_label("Model", exact=True).select_option(model["name"])
        expect(page.locator("main")).to_contain_text(model["ladder"]["note"])
        expect(page.get_by_role("alert")).to_have_count(0)
