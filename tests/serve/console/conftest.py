"""A page of the console in Debian's Chromium, driven by Playwright."""

import shutil
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.serve.api.conftest import server, start_server
from tests.serve.support.live_server import LiveServer

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)

__all__ = ["server", "start_server"]

OpenPage = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Return a browser. Its library keeps an event loop on this thread, so one module has it."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium: Debian's package `chromium`")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Open pages that fail the test if a script fails, breaks the policy or asks another server."""
    wrong: list[str] = []
    contexts = []

    def open_page(
        server: LiveServer, tab: str = "playground", theme: str = "light", width: int = 1200
    ) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=theme, reduced_motion="reduce"
        )
        contexts.append(context)
        origin, page = f"http://127.0.0.1:{server.port}/", context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: "Content Security" in said.text and wrong.append(said.text))
        page.on("request", lambda asked: asked.url.startswith(origin) or wrong.append(asked.url))
        page.goto(f"{origin}#{tab}")
        page.get_by_role("tab", selected=True).wait_for()
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not wrong


def use_key(page: Page, key: str) -> None:
    """Give a key to a page that asks for one."""
    page.get_by_label("Key", exact=True).fill(key)
    page.get_by_role("button", name="Use this key").click()
