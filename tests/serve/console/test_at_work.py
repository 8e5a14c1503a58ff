"""The console while the server, its policy or the network is not as the page would like."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Route, expect

from serve.rules.traits import Task
from tests.serve.api.conftest import StartServer
from tests.serve.console.conftest import OpenPage, use_key
from tests.serve.support.bundles import rewrite_manifest
from tests.serve.support.keys import make_key
from tests.serve.support.live_server import LiveServer, serving_bundles
from tests.serve.support.task_bundles import Kind, write_task_bundle

expect.set_options(timeout=30_000)

FULL = {"rule": "never"}


def no_answer(route: Route) -> None:
    """Cut a request's connection."""
    route.abort()


def test_after_the_guardrail_has_acted_every_tab_says_so(
    open_page: OpenPage, server: LiveServer
) -> None:
    at = f"http://127.0.0.1:{server.port}/v1/models/tiny/policy"
    first = server.http.get(at).json()
    server.http.patch(
        at, json={"patch": {"profiles": {"slow": FULL}}, "version": 1}
    ).raise_for_status()
    acted = {"version": 2, "source": "guardrail", "by": "guardrail", "why": "5 of 200 differ"}

    def by_the_guardrail(route: Route) -> None:
        answer = route.fetch()
        found = answer.json()
        for each in (found, *found.get("entries", ())):
            if each.get("version") == 2:
                each.update(acted)
        route.fulfill(response=answer, json=found)

    page = open_page(server)
    page.route("**/policy", by_the_guardrail)
    page.route("**/policy/history*", by_the_guardrail)
    page.reload()
    for tab in ("Playground", "Live", "Quality", "Policy", "Models"):
        page.get_by_role("tab", name=tab).click()
        banner = page.get_by_role("alert", name="The guardrail has acted")
        expect(banner).to_contain_text("5 of 200 differ")
        expect(banner).to_contain_text("offramp policy rollback 1")
        expect(banner).to_contain_text("profiles.slow")
    page.unroute("**/policy")
    banner.get_by_role("button", name="Roll back to version 1").click()
    expect(banner).to_have_count(0)
    live = server.http.get(at).json()
    assert (live["version"], live["policy"]) == (3, first["policy"])


def test_page_goes_on_once_the_server_has_come_back(
    open_page: OpenPage, server: LiveServer
) -> None:
    page = open_page(server, "live")
    expect(page.locator(".figure", has_text="Replicas")).to_contain_text("of 1")
    page.route("**/v1/**", no_answer)
    page.get_by_role("tab", name="Models").click()
    expect(page.get_by_role("alert").first).to_contain_text("does not answer")
    page.unroute("**/v1/**")
    expect(page.get_by_role("region", name="tiny", exact=True)).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_draft_is_kept_while_the_reader_looks_at_another_tab(
    open_page: OpenPage, start_server: StartServer
) -> None:
    server = start_server()
    page = open_page(server, "policy")
    draft, reason = page.get_by_label("Draft of the policy"), page.get_by_label("Reason")
    draft.fill(json.dumps({"default": FULL, "profiles": {"mine": FULL}}))
    reason.fill("a trial")
    page.get_by_role("tab", name="Live").click()
    expect(draft).to_have_count(0)
    server.put_policy({"default": {"rule": "layer", "layer": 2}})
    page.get_by_role("tab", name="Policy").click()
    expect(page.get_by_role("heading", name="Live policy: version 2")).to_be_visible()
    expect(page.get_by_text("on top of version 1")).to_be_visible()
    expect(draft).to_have_value(json.dumps({"default": FULL, "profiles": {"mine": FULL}}))
    expect(reason).to_have_value("a trial")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("alert")).to_contain_text("version_conflict")
    page.get_by_role("tab", name="Playground").click()
    page.get_by_label("Texts leave by").select_option("layer")
    page.get_by_role("button", name="Take it to the policy").click()
    assert json.loads(draft.input_value())["profiles"] == {"mine": FULL}
    assert json.loads(draft.input_value())["default"]["rule"] == "layer"
    page.get_by_role("button", name="Discard").click()
    expect(page.get_by_text("on top of version 2")).to_be_visible()
    page.get_by_role("tab", name="Live").click()
    page.get_by_role("tab", name="Policy").click()
    assert json.loads(draft.input_value())["default"] == {"rule": "layer", "layer": 2}


def test_dry_run_is_not_shown_beside_another_draft(open_page: OpenPage, server: LiveServer) -> None:
    page = open_page(server, "policy")
    page.get_by_label("Draft of the policy").fill(json.dumps({"default": FULL}))
    page.get_by_role("button", name="Dry run").click()
    expect(page.locator(".dry-run")).to_be_visible()
    page.get_by_label("Draft of the policy").fill("{}")
    expect(page.locator(".dry-run")).to_have_count(0)


@pytest.mark.parametrize("task", ["single_label", "multi_label"])
def test_playground_runs_by_profiles_where_requests_have_no_rule_of_their_own(
    open_page: OpenPage, start_server: StartServer, tmp_path: Path, task: Task
) -> None:
    server = start_server(write_task_bundle(tmp_path, Kind(task)))
    profiles = {"thrifty": {"rule": "layer", "layer": 2}, "full": FULL}
    policy = {"default": "thrifty", "profiles": profiles, "limits": {"overrides": "profiles"}}
    assert server.put_policy(policy, task).status_code == 200
    page = open_page(server)
    expect(page.locator(".decided .card")).to_have_count(4)
    page.get_by_label("Texts leave by").select_option("profile thrifty")
    expect(page.locator(".decided .card").first).to_contain_text("at layer 2 of 4")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_next_key_may_do_what_the_one_before_might_not(
    open_page: OpenPage, bundle_folder: Path, tmp_path: Path
) -> None:
    keys = [make_key(tmp_path, scope) for scope in ("read", "admin")]
    with serving_bundles(bundle_folder, keys=tmp_path / "keys.json") as guarded:
        page = open_page(guarded)
        for key, alerts in zip(keys, (1, 0), strict=True):
            if alerts == 0:  # without a key the page asks for it
                page.get_by_role("button", name="Key").click()
            use_key(page, key)
            expect(page.get_by_text("The same by curl")).to_be_visible()
            expect(page.get_by_role("alert")).to_have_count(alerts)
        expect(page.locator(".decided .card")).to_have_count(4)


def test_answer_to_an_earlier_run_is_not_shown(open_page: OpenPage, server: LiveServer) -> None:
    page = open_page(server)
    held: list[Route] = []

    def hold(route: Route) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    expect(page.locator(".decided .card")).to_have_count(4)
    texts, run = (
        page.get_by_label("Texts, one per line"),
        page.get_by_role("button", name="Run through"),
    )
    page.route("**/v1/classify", hold)
    texts.fill("w1")
    with page.expect_request("**/v1/classify"):
        run.click()
    texts.fill("w2 w3")
    run.press("Enter")  # a busy button takes no click, but it takes keys
    expect(page.locator(".decided h3")).to_have_text(["w2 w3"])
    with page.expect_response("**/v1/classify"):
        held[0].continue_()
    page.evaluate("new Promise(requestAnimationFrame)")
    expect(page.locator(".decided h3")).to_have_text(["w2 w3"])


def test_model_with_one_exit_can_be_turned(
    open_page: OpenPage, start_server: StartServer, bundle_copy: Callable[..., Path]
) -> None:
    tiny = bundle_copy("tiny")
    rewrite_manifest(tiny, lambda manifest: manifest.update(policy={"default": FULL}))
    page = open_page(start_server(tiny, active_exits={"tiny": [4]}))
    expect(page.locator(".decided .card").first).to_be_visible()
    page.get_by_label("Texts leave by").select_option("patience")
    page.get_by_label("patience, as a number").fill("5")
    page.get_by_label("patience, as a number").blur()
    expect(page.locator(".rule-text")).to_have_text('{"rule":"patience","patience":1}')
    for tab in ("Live", "Quality", "Models"):
        page.get_by_role("tab", name=tab).click()
        expect(page.locator(".card").first).to_be_visible()


def test_policy_that_is_refused_is_said_to_be(open_page: OpenPage, server: LiveServer) -> None:
    page = open_page(server, "live")
    error = {"error": {"code": "forbidden", "message": "not for this key"}}
    page.route("**/policy", lambda route: route.fulfill(status=403, json=error))
    page.get_by_role("tab", name="Policy").click()
    expect(page.get_by_role("alert")).to_contain_text("not for this key")
    expect(page.locator("main [aria-busy=true]")).to_have_count(0)


def test_key_that_no_header_can_carry_is_not_taken(open_page: OpenPage, server: LiveServer) -> None:
    page = open_page(server)
    page.get_by_role("button", name="Key").click()
    field = page.get_by_label("Key", exact=True)
    field.fill("ключ")
    page.get_by_role("button", name="Use this key").click()
    expect(field).to_be_visible()
    field.fill(" right \t")
    page.get_by_role("button", name="Use this key").click()
    assert page.evaluate("sessionStorage.getItem('offramp-key')") == "right"


def test_names_of_what_objects_have_are_names_like_others(
    open_page: OpenPage, server: LiveServer
) -> None:
    found = open_page(server).evaluate("""async () => {
      const load = (name) => import(new URL(`/console/${name}.js`, location));
      const [{ decide }, { Growth }] = [await load("rules"), await load("metrics")];
      const exits = [1, 2, 3].map((layer) => ({ layer, label: "constructor", logits: [1, 0] }));
      const line = 'offramp_exits_total{layer="1",model="constructor",reason="final"} 3';
      return [decide({ rule: "voting", votes: 2 }, exits).reason,
        [...new Growth().read(line, 0).models.constructor.grown]];
    }""")
    assert found == ["votes", [["exits 1", 0]]]


def test_versions_before_the_latest_can_be_reached(
    open_page: OpenPage, start_server: StartServer
) -> None:
    server = start_server()
    for layer in range(22):
        server.put_policy({"default": {"rule": "layer", "layer": 1 + layer % 3}})
    page = open_page(server, "policy")
    page.get_by_role("button", name="Earlier versions").click()
    expect(page.get_by_role("button", name="Roll back to 1", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Earlier versions")).to_have_count(0)


@pytest.mark.parametrize("task", ["regression", "token"])
def test_values_and_entities_have_no_bar_of_a_score(
    open_page: OpenPage, start_server: StartServer, tmp_path: Path, task: Task
) -> None:
    page = open_page(start_server(write_task_bundle(tmp_path, Kind(task))))
    expect(page.locator(".decided .exits .label").first).to_be_visible()
    expect(page.locator(".decided .bar")).to_have_count(0)
    expect(page.get_by_text("score", exact=True)).to_have_count(0)
    page.get_by_label("Texts leave by").select_option("patience")
    expect(page.get_by_text('"patience"').first).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
