"""The scripts of init container and sidecar, with real archives and a real server."""

import hashlib
import importlib.util
import io
import json
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import ModuleType

import pytest

from serve.bundle.loader import load_bundle
from tests.helm.chart import CHART
from tests.serve.support.http_answers import answering
from tests.serve.support.live_server import LiveServer, serving_bundles


def script(name: str) -> ModuleType:
    """Import one of the chart's scripts."""
    spec = importlib.util.spec_from_file_location(name, CHART / "files" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fetching, syncing = script("fetch_bundles"), script("sync_policies")


@contextmanager
def serving(content: bytes, token: str = "", moved: bool = False) -> Iterator[str]:
    """Answer every GET with the content if the token comes along; `moved`: only without it."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        if moved and request.path == "/bundle":
            request.send_response(302)
            request.send_header("Location", "/signed")
            request.end_headers()
            return
        allowed = request.headers["Authorization"] == (f"Bearer {token}" if token else None)
        request.send_response(200 if allowed else 403)
        request.send_header("Content-Length", str(len(content) if allowed else 0))
        request.end_headers()
        if allowed:
            request.wfile.write(content)

    with answering(answer) as url:
        yield f"{url}/bundle"


def tar_of(folder: Path, at: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        archive.add(folder, at)
    return out.getvalue()


def zip_of(folder: Path) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for file in folder.rglob("*"):
            archive.write(file, file.relative_to(folder))
    return out.getvalue()


PACKERS: dict[str, Callable[[Path], bytes]] = {
    "tar with a folder": lambda folder: tar_of(folder, "any-name"),
    "tar without": lambda folder: tar_of(folder, "."),
    "zip": zip_of,
}


@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)
def test_bundle_is_fetched_and_can_be_loaded(
    bundle_folder: Path, tmp_path: Path, pack: Callable[[Path], bytes]
) -> None:
    content = pack(bundle_folder)
    (tmp_path / "mine").mkdir()  # as a container that starts once more finds it
    with serving(content) as url:
        wanted = {"name": "mine", "url": url, "sha256": hashlib.sha256(content).hexdigest()}
        fetching.main(tmp_path, [wanted])
    assert load_bundle(tmp_path / "mine").name == "mine"
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine"]


def outside() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("../outside"))
    return out.getvalue()


@pytest.mark.parametrize("wrong", ["another hash", "reaches outside", "no bundle in it"])
def test_archive_that_is_not_what_it_should_be_is_refused_and_leaves_nothing(
    bundle_folder: Path, tmp_path: Path, wrong: str
) -> None:
    empty, fetched = tmp_path / "empty", tmp_path / "fetched"
    empty.mkdir()
    fetched.mkdir()
    content = {
        "another hash": tar_of(bundle_folder, "."),
        "reaches outside": outside(),
        "no bundle in it": tar_of(empty, "."),
    }[wrong]
    digest = "0" * 64 if wrong == "another hash" else hashlib.sha256(content).hexdigest()
    with (
        serving(content) as url,
        pytest.raises((fetching.Refused, tarfile.OutsideDestinationError)),
    ):
        wanted = {"name": "mine", "url": url, "sha256": digest}
        fetching.fetch(wanted, fetched / "mine")
    assert not list(fetched.iterdir())


def test_token_goes_along(
    bundle_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = tar_of(bundle_folder, ".")
    file = tmp_path / "archive"
    with serving(content, token="s3cret") as url:
        with pytest.raises(OSError, match="403"):
            fetching.download(url, file)
        monkeypatch.setenv("BUNDLE_TOKEN", "s3cret")
        assert fetching.download(url, file) == hashlib.sha256(content).hexdigest()


def test_token_goes_to_no_other_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUNDLE_TOKEN", "s3cret")
    with serving(b"content", moved=True) as url:
        fetching.download(url, tmp_path / "archive")
    assert (tmp_path / "archive").read_bytes() == b"content"


@pytest.fixture(scope="module")
def server(bundle_folder: Path) -> Iterator[LiveServer]:
    with serving_bundles(bundle_folder) as server:
        yield server


@pytest.fixture
def policy_file(tmp_path: Path) -> Callable[[int], Path]:
    """Write the policy that leaves at a layer, as the ConfigMap holds it."""

    def write(layer: int) -> Path:
        policy = {"default": {"rule": "layer", "layer": layer}}
        (tmp_path / "tiny.json").write_text(json.dumps(policy))
        return tmp_path

    return write


def test_policies_are_sent_when_they_change_and_not_otherwise(
    server: LiveServer, policy_file: Callable[[int], Path]
) -> None:
    url = f"http://127.0.0.1:{server.port}"
    sent: dict[str, object] = {}
    assert syncing.send_due(url, policy_file(1), sent)
    assert server.answer("w1")["results"][0]["exit"]["layer"] == 1
    folder = policy_file(3)
    assert syncing.send_due(url, folder, sent)
    answer = server.answer("w1")
    assert answer["results"][0]["exit"]["layer"] == 3

    # What an operator sets by the API stays, until the file changes.
    change = {"policy": {"default": {"rule": "layer", "layer": 2}}, "version": None}
    assert server.http.put("/v1/models/tiny/policy", json=change).status_code == 200
    assert syncing.send_due(url, folder, sent)
    assert server.answer("w1")["results"][0]["exit"]["layer"] == 2
    assert syncing.send_due(url, policy_file(4), sent)
    assert server.answer("w1")["results"][0]["exit"]["layer"] == 4


def test_policy_that_the_model_cannot_follow_is_said_once_and_changes_nothing(
    server: LiveServer, policy_file: Callable[[int], Path], capfd: pytest.CaptureFixture[str]
) -> None:
    url = f"http://127.0.0.1:{server.port}"
    version = server.http.get("/v1/models/tiny/policy").json()["version"]
    sent: dict[str, object] = {}
    folder = policy_file(9)
    for _ in range(3):
        assert syncing.send_due(url, folder, sent) is None  # the policy before it stays
    said = capfd.readouterr().err
    assert said.count("tiny: refused:") == 1
    assert "layer 9 has no exit" in said
    assert server.http.get("/v1/models/tiny/policy").json()["version"] == version


@pytest.mark.parametrize("wrong", [("tiny", 9), ("tinny", 2)])
def test_pod_whose_policy_is_refused_is_not_ready_until_one_applies(
    bundle_folder: Path, tmp_path: Path, wrong: tuple[str, int]
) -> None:
    folder, applied, sent = tmp_path / "policies", tmp_path / "applied", {}
    folder.mkdir()

    def write(model: str, layer: int) -> None:
        for file in folder.iterdir():
            file.unlink()
        policy = {"default": {"rule": "layer", "layer": layer}}
        (folder / f"{model}.json").write_text(json.dumps(policy))

    def ready() -> bool:
        syncing.mark(applied, syncing.send_due(url, folder, sent))
        return applied.exists()

    with serving_bundles(bundle_folder) as server:
        url = f"http://127.0.0.1:{server.port}"
        write(*wrong)
        assert not ready()
        assert not ready()
        write("tiny", 2)
        assert ready()
        write(*wrong)
        assert ready()  # in the place of a policy that was refused, the one before it is live
        assert ready()
        assert server.answer("w1")["results"][0]["exit"]["layer"] == 2
    assert not ready()
    if wrong[0] == "tiny":
        with serving_bundles(bundle_folder) as server:
            url = f"http://127.0.0.1:{server.port}"
            assert not ready()  # a server that has restarted follows its bundle's policy


def test_server_that_starts_anew_gets_its_policy_again(
    bundle_folder: Path, policy_file: Callable[[int], Path]
) -> None:
    folder, sent, url = policy_file(2), {}, ""
    for _ in range(2):
        with serving_bundles(bundle_folder) as server:
            url = f"http://127.0.0.1:{server.port}"
            assert server.http.get("/v1/models/tiny/policy").json()["source"] == "bundle"
            assert syncing.send_due(url, folder, sent)
            assert server.answer("w1")["results"][0]["exit"]["layer"] == 2
    assert not syncing.send_due(url, folder, sent)  # there is no server
