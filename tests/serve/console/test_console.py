"""What a reader does with the console, in a real browser."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from serve.commands.figures import Growth, between
from tests.serve.api.conftest import StartServer
from tests.serve.commands.test_top import PAGES, TEXTS_OF_PAGES, page_of
from tests.serve.console.conftest import OpenPage, use_key
from tests.serve.support.keys import make_key
from tests.serve.support.live_server import LiveServer, serving_bundles
from tests.support.tiny import WORDS

TABS = ("playground", "live", "quality", "policy", "models")
TEXTS = [" ".join(WORDS[i : i + 3]) for i in range(30)]

expect.set_options(timeout=30_000)


@pytest.fixture(scope="module")
def shared(bundle_folder: Path) -> Iterator[LiveServer]:
    """Return a server whose policy no test changes."""
    with serving_bundles(bundle_folder) as server:
        yield server


def wait_for_share(page: Page, server: LiveServer, wanted: float) -> None:
    """Send texts until the live tab shows that this share of them leaves at layer 1."""
    page.get_by_role("tab", name="Live").click()
    cell = page.locator(".layer-bars td[data-layer='1']").first
    for _ in range(40):
        server.answer(TEXTS)
        before = page.evaluate("performance.now()")
        page.wait_for_function("before => performance.now() > before + 500", arg=before)
        if abs(float(cell.get_attribute("data-share") or "nan") - wanted) < 0.001:
            return
    raise AssertionError(f"share {cell.get_attribute('data-share')} instead of {wanted}")


def test_turned_threshold_is_applied_moves_the_exits_and_is_rolled_back(
    open_page: OpenPage, start_server: StartServer
) -> None:
    server = start_server()
    layers = [result["exit"]["layer"] for result in server.answer(TEXTS)["results"]]
    before = layers.count(1) / len(layers)
    assert before < 1
    page = open_page(server)
    page.get_by_label("Texts leave by").select_option("entropy")
    page.get_by_role("slider", name="threshold").fill("1000")
    expect(page.get_by_text("100 %")).to_be_visible()
    page.get_by_role("button", name="Take it to the policy").click()
    expect(page.get_by_role("region", name="Dry run of default")).to_contain_text("entropy 1.099")
    page.get_by_label("Reason").fill("all at once")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("heading", name="Live policy: version 2")).to_be_visible()
    expect(page.locator(".history")).to_contain_text("all at once")
    wait_for_share(page, server, 1)
    page.get_by_role("tab", name="Policy").click()
    page.get_by_role("button", name="Roll back to 1").click()
    expect(page.get_by_role("heading", name="Live policy: version 3")).to_be_visible()
    assert server.http.get("/v1/models/tiny/policy").json()["action"] == "rollback"
    wait_for_share(page, server, before)


def test_keyboard_alone_reaches_tabs_dial_and_policy(
    open_page: OpenPage, start_server: StartServer
) -> None:
    server = start_server()
    page = open_page(server)
    focused = page.locator(":focus")
    for key, name in (("ArrowRight", "Live"), ("End", "Models"), ("Home", "Playground")):
        if key == "ArrowRight":
            page.keyboard.press("Tab")  # skips to the content
            page.keyboard.press("Tab")
        page.keyboard.press(key)
        expect(focused).to_have_text(name)
        expect(page.get_by_role("tab", selected=True)).to_have_text(name)
    expect(page.locator(".decided .card").first).to_be_visible()

    def tab_to(name: str) -> None:
        for _ in range(30):
            page.keyboard.press("Tab")
            said = page.evaluate(
                "(e => e === document.body ? '' : (e.labels?.[0] || e).textContent + e.ariaLabel)"
                "(document.activeElement)"
            )
            if name in said:
                return
        raise AssertionError(f"no way to {name}")

    tab_to("Texts leave by")
    page.keyboard.type("entropy")
    tab_to("threshold")
    page.keyboard.press("End")
    tab_to("Take it to the policy")
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Dry run of default")).to_be_visible()
    tab_to("Draft")
    tab_to("Apply")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Live policy: version 2")).to_be_visible()


@pytest.mark.parametrize(("theme", "width"), [("light", 1200), ("dark", 360)])
@pytest.mark.parametrize("tab", TABS)
def test_axe_finds_nothing_and_nothing_is_wider_than_the_window(
    open_page: OpenPage, shared: LiveServer, tab: str, theme: str, width: int
) -> None:
    shared.answer(TEXTS)
    page = open_page(shared, tab, theme, width)
    expect(page.locator(".card").first).to_be_visible()
    expect(page.locator("main [aria-busy=true]")).to_have_count(0)
    found = Axe().run(page)
    assert not found.response["violations"], found.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".head nav").evaluate("(e) => e.scrollWidth <= e.clientWidth")


def test_refused_page_does_not_ask_again_and_again(
    open_page: OpenPage, bundle_folder: Path, tmp_path: Path
) -> None:
    make_key(tmp_path, "read")
    with serving_bundles(bundle_folder, keys=tmp_path / "keys.json") as guarded:
        page, asked = open_page(guarded), []
        page.clock.install()
        with page.expect_response("**/metrics"):
            page.reload()
        expect(page.get_by_role("alert")).to_contain_text("Enter a key")
        page.on("request", lambda request: asked.append(request.url))
        page.clock.run_for(60_000)
        page.evaluate("fetch('/health/live')")
        assert asked == [f"http://127.0.0.1:{guarded.port}/health/live"]


def test_theme_and_key_are_the_readers_choice(
    open_page: OpenPage, bundle_folder: Path, tmp_path: Path
) -> None:
    key = make_key(tmp_path, "read")
    with serving_bundles(bundle_folder, keys=tmp_path / "keys.json") as guarded:
        page = open_page(guarded, "policy")
        expect(page.get_by_role("alert")).to_contain_text("Enter a key")
        use_key(page, key)
        expect(page.get_by_role("heading", name="Live policy: version 1")).to_be_visible()
        page.get_by_role("button", name="Apply").click()
        expect(page.get_by_role("alert").last).to_contain_text("admin")
        page.get_by_role("button", name="Use the dark theme").click()
        page.reload()
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        expect(page.get_by_role("heading", name="Live policy: version 1")).to_be_visible()
        page.get_by_role("tab", name="Live").click()
        expect(page.locator(".figure", has_text="Replicas")).to_contain_text(re.compile("1.*of 1"))


def test_rollout_is_started_paused_and_aborted(
    open_page: OpenPage, start_server: StartServer
) -> None:
    server = start_server()
    before = server.http.get("/v1/models/tiny/policy").json()["policy"]
    page = open_page(server, "policy")
    page.get_by_text("Roll it out step by step").click()
    page.get_by_label("Steps, %").fill("10 100")
    page.get_by_label("Differ from full depth").fill("30")
    page.get_by_label("Draft of the policy").fill(json.dumps(before | {"default": "fast"}))
    page.get_by_label("Reason").fill("a trial")
    page.get_by_role("button", name="Start the rollout").click()
    expect(page.get_by_role("heading", name="Rollout: running")).to_be_visible()
    found = server.http.get("/v1/models/tiny/policy/rollout").json()
    assert (found["steps"], found["percent"], found["hold_s"]) == ([10, 100], 10, 600)
    assert (found["bounds"], found["on_inconclusive"]) == ({"disagreement": 0.3}, "pause")
    assert found["candidate"]["default"] == "fast"
    expect(page.get_by_role("region", name="Both arms")).to_contain_text("at most 30 %")
    expect(page.get_by_text("on top of version 2")).to_be_visible()
    assert not Axe().run(page).response["violations"]
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Abort").click()
    expect(page.get_by_role("heading", name="Rollout: aborted")).to_be_visible()
    assert server.http.get("/v1/models/tiny/policy").json()["policy"] == before
    expect(page.locator(".history")).to_contain_text("abort")


RULES: list[dict[str, Any]] = [
    {"rule": "never"},
    {"rule": "never", "max_layer": 3},
    {"rule": "layer", "layer": 2},
    *({"rule": "entropy", "threshold": t} for t in (0, 0.3, 0.9, 1.05, 1.2)),
    {"rule": "entropy", "threshold": [0.2, 1.0, 1.05, 0.5]},
    {"rule": "entropy", "threshold": 1.0, "min_layer": 2, "max_layer": 3},
    *({"rule": "normalized_entropy", "threshold": t} for t in (0.5, 0.9, 0.98)),
    *({"rule": "confidence", "threshold": t} for t in (0.4, 0.5, 0.8, 1)),
    *({"rule": "margin", "threshold": t} for t in (0.05, 0.2, 0.9)),
    *({"rule": "patience", "patience": t} for t in (1, 2, 3)),
    *({"rule": "voting", "votes": t} for t in (1, 2, 3)),
]


def test_browser_decides_as_the_server_does(open_page: OpenPage, shared: LiveServer) -> None:
    page = open_page(shared)
    full = shared.answer(TEXTS, exit={"rule": "never"}, **{"return": ["exits", "logits"]})
    exits = [result["exits"] for result in full["results"]]
    model = shared.http.get("/v1/models/tiny").json()
    temperatures = {str(exit["layer"]): exit["temperature"] for exit in model["exits"]}
    decided = """async ([rules, texts, temperatures]) => {
      const { decidable, decide } = await import(new URL("/console/rules.js", location));
      return rules.map((rule) => decidable(rule) &&
        texts.map((exits) => decide(rule, exits, temperatures)));
    }"""
    for rule, found in zip(
        RULES, page.evaluate(decided, [RULES, exits, temperatures]), strict=True
    ):
        for result, here in zip(shared.answer(TEXTS, exit=rule)["results"], found, strict=True):
            there = result["exit"]["layer"], result["exit"]["reason"], result["label"]
            assert (here["layer"], here["reason"], here["label"]) == there, rule


def test_browser_reckons_the_live_figures_as_offramp_top_does(
    open_page: OpenPage, shared: LiveServer
) -> None:
    texts = [shared.http.get("/metrics").text]
    shared.answer(TEXTS)
    shared.refusal("w1", exit="nothing")
    texts.append(shared.http.get("/metrics").text)
    growth = Growth()
    ours = between(*(growth.read(text, 10 * i) for i, text in enumerate(texts)), "tiny")
    reckoned = """async (texts) => {
      const { between, Growth } = await import(new URL("/console/metrics.js", location));
      const growth = new Growth();
      return between(...texts.map((text, i) => growth.read(text, 10 * i)), "tiny");
    }"""
    theirs = open_page(shared).evaluate(reckoned, texts)
    assert ours is not None
    for name in ("requests_s", "refused_s", "failed_s", "layers", "saved"):
        assert theirs[name] == pytest.approx(getattr(ours, name)), name
    assert [theirs[name] for name in ("p50", "p95", "p99")] == pytest.approx(ours.quantiles_ms)
    assert {int(layer): n / len(TEXTS) for layer, n in theirs["exits"].items()} == ours.exits


def test_browser_reckons_with_replicas_that_come_and_go_as_offramp_top_does(
    open_page: OpenPage, shared: LiveServer
) -> None:
    reckoned = """async (texts) => {
      const { between, Growth } = await import(new URL("/console/metrics.js", location));
      const growth = new Growth();
      const samples = texts.map((text, i) => growth.read(text, 10 * i));
      return samples.slice(1).map((sample, i) => between(samples[i], sample, "m").answers);
    }"""
    found = open_page(shared).evaluate(reckoned, [page_of(each) for each in PAGES])
    assert found == TEXTS_OF_PAGES
