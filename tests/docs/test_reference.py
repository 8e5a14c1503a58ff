"""What pages list is what the server has: metrics, error codes, fields, options."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter

from serve import errors
from serve.config import ServerLimits
from tests.docs.test_pages import ROOT
from tests.serve.support.live_server import LiveServer, serving_bundles

# Only a page for several replicas has these.
OF_REPLICAS = {"offramp_replicas_scraped", "offramp_replicas_unreachable"}

# No answer to a request has these codes: commands say them, or the client has left.
NOT_ANSWERED = {"cancelled", "device_unavailable", "invalid_bundle"}


def first_cells(page: str, heading: str) -> set[str]:
    """Return what stands in backticks in the first column below a heading."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    _, _, after = f"\n{text}".partition(f"\n{heading}\n")
    assert after, f"{page} has no heading {heading}"
    section = re.split(r"^#+ ", after, maxsplit=1, flags=re.M)[0]
    rows = re.findall(r"^\| (.*?) \|", section, re.M)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


@pytest.fixture(scope="module")
def server(bundle_folder: Path) -> Iterator[LiveServer]:
    with serving_bundles(bundle_folder) as live:
        yield live


def test_page_of_metrics_lists_all_and_no_others(server: LiveServer) -> None:
    text = (ROOT / "docs" / "metrics.md").read_text("utf-8")
    listed = set(re.findall(r"`(offramp_\w+)`", text))
    served = set(re.findall(r"^# TYPE (offramp_\w+)", server.http.get("/metrics").text, re.M))
    assert listed - OF_REPLICAS == served


def fields(document: dict[str, Any], path: str) -> set[str]:
    """Return the names of the fields of a POST's body."""
    content = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    name = content["schema"]["$ref"].rpartition("/")[2]
    return set(document["components"]["schemas"][name]["properties"])


@pytest.mark.parametrize(
    ("path", "page", "heading", "elsewhere"),
    [
        ("/v1/classify", "api.md", "## Classify", {"inputs"}),
        ("/v1/models/{model}/policy/rollout", "rollout.md", "# Guarded rollout", {"why"}),
    ],
)
def test_page_lists_the_fields_of_a_body(
    server: LiveServer, path: str, page: str, heading: str, elsewhere: set[str]
) -> None:
    listed = {name.partition(".")[0] for name in first_cells(page, heading)} - {"If-Match"}
    assert fields(server.http.get("/openapi.json").json(), path) - elsewhere == listed


def test_page_lists_the_limits_with_their_defaults() -> None:
    section = (ROOT / "docs" / "operations.md").read_text("utf-8").partition("\n## Limits\n")[2]
    listed = yaml.safe_load(re.search(r"```yaml\n(.*?)```", section, re.S)[1])  # type: ignore[index]
    assert TypeAdapter(ServerLimits).dump_python(ServerLimits()) == listed


def codes(kind: type) -> Iterator[tuple[int, str]]:
    """Yield (status, code) of an error and of all below it."""
    if "code" in vars(kind) and kind.__module__ == errors.__name__:
        yield kind.status, kind.code  # type: ignore[attr-defined]
    for below in kind.__subclasses__():
        yield from codes(below)


def test_page_lists_every_error_with_its_status() -> None:
    text = (ROOT / "docs" / "api.md").read_text("utf-8").partition("## Errors")[2]
    rows = dict(re.findall(r"^\| (\d{3}) \| (.*) \|$", text, re.M))
    for status, code in set(codes(errors.OfframpError)):
        listed = code in NOT_ANSWERED or f"`{code}`" in rows.get(str(status), "")
        assert listed, f"{status} {code} is not in the table"


def test_files_that_the_tour_names_after_another_lie_beside_it() -> None:
    for line in (ROOT / "docs" / "architecture.md").read_text("utf-8").splitlines():
        folders = [ROOT / "serve", ROOT / "models"]
        for name in map(Path, re.findall(r"`([\w/]+\.py)`", line)):
            if name.parent != Path():
                folders = [ROOT / name.parent]
            assert any([*folder.rglob(name.name)] for folder in folders), f"{name}: {line}"


def descriptions(part: Any) -> Iterator[str]:
    """Yield every description below a part of the OpenAPI document."""
    if isinstance(part, list):
        for each in part:
            yield from descriptions(each)
    elif isinstance(part, dict):
        for name, value in part.items():
            if name == "description" and isinstance(value, str):
                yield value
            else:
                yield from descriptions(value)


def test_descriptions_of_the_api_name_their_subject(server: LiveServer) -> None:
    for text in descriptions(server.http.get("/openapi.json").json()):
        assert "Attributes:" not in text, "the document describes fields one by one"
        assert not re.match(r"Of |Only of |Only if it|By |In which |[a-z]+ ", text), text
