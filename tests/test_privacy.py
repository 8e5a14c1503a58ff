"""Nothing leaves the machine, and nothing is kept beside what was asked for.

Python tells of every name that it looks up and every file that it opens. ONNX Runtime looks names
up by itself, and shows that it does by the device's id and the events in the user's cache.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.serve.support.server_process import ServerProcess, run_offramp_alone

WATCH = """
import os, sys

_HERE = ("127.0.0.1", "::1", "localhost", "", None)

def _watch(event, args):
    if event in ("socket.getaddrinfo", "socket.gethostbyname"):
        found = args[0] not in _HERE and args[0]
    elif event == "socket.connect":
        found = isinstance(args[1], tuple) and args[1][0] not in _HERE and args[1]
    elif event == "open":
        writes = args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        inside = str(args[0]).startswith(({allowed!r}, "/dev/", "/proc/"))
        found = writes and isinstance(args[0], str) and not inside and args[0]
    else:
        return
    if found:
        os.write(log, f"{{event}} {{found}}\\n".encode())

log = os.open({log!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
sys.addaudithook(_watch)
"""


@pytest.fixture
def said_or_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Watch the commands that are run; return what they have looked up, and written outside."""
    hooks, home, allowed = (tmp_path / name for name in ("hooks", "home", "allowed"))
    for folder in (hooks, home, allowed):
        folder.mkdir()
    log = tmp_path / "log"
    (hooks / "sitecustomize.py").write_text(WATCH.format(allowed=str(allowed), log=str(log)))
    monkeypatch.setenv("PYTHONPATH", f"{hooks}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("TMPDIR", str(allowed))
    for name in ("XDG_CACHE_HOME", "ORT_DISABLE_TELEMETRY", "OMP_WAIT_POLICY", "HF_HOME"):
        monkeypatch.delenv(name, raising=False)

    def look() -> list[str]:
        assert log.exists(), "the commands were not watched"
        return [*log.read_text().splitlines(), *map(str, home.rglob("*"))]

    return look


def test_serve_looks_nothing_up_and_writes_nothing(
    bundle_folder: Path, said_or_kept: Callable[[], list[str]]
) -> None:
    with ServerProcess(bundle_folder, "--standalone", "--port", "0") as server:
        server.client().answer("w1")
    assert said_or_kept() == []


def test_predict_looks_nothing_up_and_writes_nothing_else(
    bundle_folder: Path, said_or_kept: Callable[[], list[str]], tmp_path: Path
) -> None:
    texts, out = tmp_path / "texts.txt", tmp_path / "allowed" / "out.tsv"
    texts.write_text("w1 w2\n")
    done = run_offramp_alone("predict", bundle_folder, "--data", texts, "--out", out)
    assert done.status == 0, done.error
    assert said_or_kept() == []
