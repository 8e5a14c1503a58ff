"""The tab of what is served, and of models that change meanwhile, in a real browser."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect

from tests.serve.console.conftest import OpenPage
from tests.serve.support.ladders import certify
from tests.serve.support.live_server import LiveServer, serving_bundles
from tests.serve.support.openapi_fuzz import make_key
from tests.serve.support.task_bundles import Kind, write_task_bundle

expect.set_options(timeout=30_000)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a folder with the bundles `first` and `second`."""
    folder = tmp_path / "repository"
    for name in ("first", "second"):
        write_task_bundle(folder, Kind("single_label"), name)
    return folder


@pytest.fixture
def server(repository: Path) -> Iterator[LiveServer]:
    """Return a server of `first` that may load all of the repository."""
    with serving_bundles(repository / "first", model_repository=repository) as live:
        yield live


def card(page: Page, model: str) -> Locator:
    return page.get_by_role("region", name=model, exact=True)


def test_bundle_and_its_certificates_are_shown(
    open_page: OpenPage, bundle_copy: Callable[..., Path]
) -> None:
    with serving_bundles(certify(bundle_copy("tiny"), "fp32")) as live:
        page, model = open_page(live, "models"), live.http.get("/v1/models/tiny").json()
        tiny = card(page, "tiny")
        for shown in (model["bundle"], "fp32", "cpu", "4, exits at 1 to 4", "ready"):
            expect(tiny).to_contain_text(shown)
        certificates = tiny.get_by_role("region", name="Certificates").get_by_role("row")
        expect(certificates.first).to_have_text(re.compile(r"at most0\.5.%1.%2.%3.%"))
        expect(certificates.nth(1)).to_have_text(
            re.compile(r"full depth3\.60 .*2\.80 .*2\.80 .*2\.00 ")
        )
        expect(certificates.nth(2)).to_have_text(re.compile(r"lost2\.80 .*2\.80 .*2\.00 .*2\.00 "))


def test_models_are_loaded_and_unloaded_and_an_alias_moves(
    open_page: OpenPage, server: LiveServer
) -> None:
    page = open_page(server, "models")
    status = page.get_by_role("status")
    page.get_by_label("Reason").fill("a better one")
    page.get_by_role("button", name="Load", exact=True).click()
    expect(status).to_have_text("✓ second is loaded")
    assert server.answer("w1", model="second")["model"] == "second"
    page.get_by_label("New alias").fill("sentiment")
    page.get_by_role("button", name="Add").click()
    expect(status).to_have_text("✓ sentiment stands for first")
    page.get_by_label("Model of sentiment").select_option("second")
    expect(status).to_have_text("✓ sentiment stands for second")
    expect(card(page, "second")).to_contain_text("sentiment")
    assert server.answer("w1", model="sentiment")["model"] == "second"
    history = page.locator(".history li")
    expect(history.first).to_contain_text("sentiment stands for second, before for first")
    expect(history.nth(2)).to_contain_text("a better one")
    for alias in ("sentiment", "default"):  # the second is of requests without a model
        entry = page.locator(".aliases li", has=page.get_by_text(alias, exact=True))
        entry.get_by_role("button", name="Remove").click()
        page.get_by_role("dialog").get_by_role("button", name="Remove").click()
        expect(status).to_have_text(f"✓ {alias} stands for no model")
    for model in ("first", "second"):
        card(page, model).get_by_role("button", name="Unload").click()
        assert not Axe().run(page).response["violations"]
        page.get_by_role("dialog").get_by_role("button", name="Unload").click()
        expect(status).to_have_text(f"✓ {model} is unloaded")
        expect(card(page, model)).to_have_count(0)
    expect(page.locator("main")).to_contain_text("No model is loaded")
    page.get_by_role("button", name="Load", exact=True).first.click()
    expect(card(page, "first")).to_contain_text("ready")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_where_models_may_change(
    open_page: OpenPage, server: LiveServer, theme: str
) -> None:
    page = open_page(server, "models", theme, width=360)
    expect(page.get_by_label("New alias")).to_be_visible()
    assert not Axe().run(page).response["violations"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_bundle_that_cannot_be_loaded_says_why(
    open_page: OpenPage, server: LiveServer, repository: Path
) -> None:
    weights = next((repository / "second").rglob("weights.bin"))
    weights.write_bytes(weights.read_bytes()[:-1])
    page = open_page(server, "models")
    page.get_by_role("button", name="Load", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("load_failed")
    expect(card(page, "second")).to_have_count(0)


def test_reader_sees_models_and_no_buttons(
    open_page: OpenPage, repository: Path, tmp_path: Path
) -> None:
    key = make_key(tmp_path, "read")
    keys = tmp_path / "keys.json"
    with serving_bundles(repository / "first", model_repository=repository, keys=keys) as live:
        page = open_page(live, "models")
        page.get_by_role("button", name="Key").click()
        page.get_by_label("Key", exact=True).fill(key)
        page.get_by_role("button", name="Use this key").click()
        expect(page.locator("main")).to_contain_text("A key with the scope admin loads")
        expect(card(page, "first")).to_be_visible()
        expect(page.get_by_role("button", name=re.compile("Load|Unload|Add"))).to_have_count(0)
