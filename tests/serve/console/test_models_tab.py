"""The tab of what is served, and of models that change meanwhile, in a real browser."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, Route, expect

from tests.serve.console.conftest import OpenPage, use_key
from tests.serve.support.bundles import rewrite_manifest
from tests.serve.support.keys import make_key
from tests.serve.support.ladders import certify
from tests.serve.support.live_server import LiveServer, serving_bundles
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


def test_labels_show_characters_that_are_not_seen(open_page: OpenPage, repository: Path) -> None:
    labels = ["safe\u202e", "un\U000e0041safe\x9b", "c"]
    rewrite_manifest(repository / "first", lambda manifest: manifest.update(labels=labels))
    with serving_bundles(repository / "first") as live:
        page = open_page(live, "models")
        expect(card(page, "first")).to_contain_text("safe\ufffd, un\ufffdsafe\ufffd")
        page.get_by_role("tab", name="Playground").click()
        page.get_by_text("safe\ufffd").first.wait_for()


def test_models_are_loaded_and_unloaded_and_an_alias_moves(
    open_page: OpenPage, server: LiveServer
) -> None:
    page = open_page(server, "models", width=360)
    status = page.get_by_role("status")
    expect(page.get_by_label("New alias")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
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


def test_bundle_that_cannot_be_loaded_says_why(
    open_page: OpenPage, server: LiveServer, repository: Path
) -> None:
    weights = next((repository / "second").rglob("weights.bin"))
    weights.write_bytes(weights.read_bytes()[:-1])
    page = open_page(server, "models")
    page.get_by_role("button", name="Load", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("load_failed")
    expect(card(page, "second")).to_have_count(0)


def test_what_another_client_changes_is_shown(open_page: OpenPage, server: LiveServer) -> None:
    page = open_page(server, "models")
    with page.expect_response("**/metrics"):  # which later ones are compared with
        page.reload()
    expect(page.get_by_label("New alias")).to_be_visible()
    expect(page.locator(".aliases")).to_contain_text("There are none.")
    server.http.put("/v1/aliases/mood", json={"model": "first"}).raise_for_status()
    expect(page.get_by_label("Model of mood")).to_have_value("first")
    expect(page.locator(".history")).to_contain_text("mood stands for first")


def test_change_during_another_is_not_made_and_said_not_to_be(
    open_page: OpenPage, server: LiveServer
) -> None:
    for method, path, body in (
        ("POST", "/v1/models/second/load", {}),
        ("PUT", "/v1/aliases/mood", {"model": "first"}),
    ):
        server.http.request(method, path, json=body).raise_for_status()
    page = open_page(server, "models")
    held: list[Route] = []
    page.route("**/load", lambda route: held.append(route))  # noqa: PLW0108 - it is given marks
    with page.expect_request("**/load"):
        card(page, "first").get_by_role("button", name="Load again").click()
    page.get_by_label("Model of mood").select_option("second")
    expect(page.get_by_role("alert")).to_contain_text("nothing was done for this one: mood")
    expect(page.get_by_label("Model of mood")).to_have_value("first")
    page.get_by_label("New alias").fill("third")
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_role("alert")).to_contain_text("third")
    held[0].continue_()
    expect(page.get_by_role("status")).to_have_text("✓ first is loaded")
    page.get_by_label("Reason").fill("twice")
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_role("status")).to_have_text("✓ third stands for first")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_playground_begins_anew_with_another_bundle_of_the_model(
    open_page: OpenPage, tmp_path: Path, bundle_copy: Callable[..., Path]
) -> None:
    tiny = certify(bundle_copy("tiny"), "fp32")
    write_task_bundle(tiny.parent, Kind("token"), "tagger")
    with serving_bundles(tiny, model_repository=tiny.parent) as live:
        page = open_page(live)
        with page.expect_response("**/metrics"):  # which later ones are compared with
            page.reload()
        expect(page.locator(".decided .card").first).to_be_visible()
        page.get_by_label("Texts leave by").select_option("target")
        load = live.http.post("/v1/models/tiny/load", json={"bundle": "tagger", "force": True})
        load.raise_for_status()
        expect(page.locator(".decided .label").first).to_contain_text("entit")
        expect(page.get_by_label("Texts leave by")).to_have_value("profile default")
        page.get_by_role("tab", name="Models").click()
        expect(card(page, "tiny")).to_contain_text("entities")


def test_reader_sees_models_and_no_buttons(
    open_page: OpenPage, repository: Path, tmp_path: Path
) -> None:
    key = make_key(tmp_path, "read")
    keys = tmp_path / "keys.json"
    with serving_bundles(repository / "first", model_repository=repository, keys=keys) as live:
        page = open_page(live, "policy")
        use_key(page, key)
        expect(page.locator("main")).to_contain_text("A key with the scope admin sees who has")
        expect(page.get_by_role("alert")).to_have_count(0)
        page.get_by_role("tab", name="Models").click()
        expect(page.locator("main")).to_contain_text("A key with the scope admin loads")
        expect(page.get_by_role("alert")).to_have_count(0)
        expect(card(page, "first")).to_be_visible()
        expect(page.get_by_role("button", name=re.compile("Load|Unload|Add"))).to_have_count(0)
