"""Takes the pictures of docs/images/console, of a server that has some traffic.

python -m tests.serve.console.pictures http://127.0.0.1:8000
"""

import io
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

from tests.serve.console.conftest import CHROMIUM

FOLDER = Path(__file__).parents[3] / "docs/images/console"
TABS = ("playground", "live", "quality", "policy", "models")
WATCHED_MS = 240_000  # what the charts of the live tab show
_HEIGHT = 900


def main(url: str) -> None:
    """Take a picture of every tab in both themes."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        pages = {
            theme: browser.new_page(
                viewport={"width": 1200, "height": _HEIGHT},
                color_scheme=theme,
                reduced_motion="reduce",
            )
            for theme in ("light", "dark")
        }
        for page in pages.values():
            page.goto(url)
        pages["light"].wait_for_timeout(WATCHED_MS)
        for theme, page in pages.items():
            for tab in TABS:
                show(page, tab)
                save(page.screenshot(full_page=True), f"{tab}-{theme}.png")
        browser.close()


def show(page: Page, tab: str) -> None:
    """Open a tab, and on that of the policy a draft with its dry run."""
    page.get_by_role("tab", name=tab.title()).click()
    if tab == "policy":
        draft = page.get_by_label("Draft of the policy")
        draft.fill(draft.input_value().replace('"default": "balanced"', '"default": "fast"'))
        page.get_by_role("button", name="Dry run").click()
        expect(page.get_by_role("region", name="Dry run of")).to_be_visible(timeout=60_000)
    page.wait_for_timeout(3000)


def save(shot: bytes, name: str) -> None:
    """Write a picture in few colours, which is a quarter of its size."""
    picture = Image.open(io.BytesIO(shot)).convert("RGB")
    picture = picture.crop((0, 0, picture.width, min(picture.height, 1500)))
    picture.quantize(96, dither=Image.Dither.NONE).save(FOLDER / name, optimize=True)


if __name__ == "__main__":
    main(sys.argv[1])
