import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from serve.cli import expected_message
from serve.version import __version__
from tests.serve.support.server_process import run_offramp, run_offramp_alone

HEAVY = ("torch", "transformers", "onnx", "onnxscript", "safetensors")


def loaded_modules(*arguments: str) -> frozenset[str]:
    """Return the top-level modules that a run of `offramp` has loaded at its end."""
    program = (
        "import sys\n"
        "from serve.cli import main\n"
        f"sys.argv = ['offramp', *{list(arguments)!r}]\n"
        "try:\n"
        "    main()\n"
        "except SystemExit:\n"
        "    pass\n"
        "print('LOADED', *{name.partition('.')[0] for name in sys.modules})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return frozenset(done.stdout.rpartition("LOADED")[2].split())


@pytest.mark.parametrize(
    ("arguments", "later"),
    [
        (("--help",), {"ray", "onnxruntime", "fastapi"}),
        (("serve", "--help"), {"ray", "onnxruntime", "fastapi"}),
        (("serve", "/nowhere", "--standalone"), {"ray"}),
        (("export", "--help"), set()),
        (("train", "--help"), set()),
    ],
)
def test_what_is_heavy_is_not_loaded_before_it_is_needed(
    arguments: tuple[str, ...], later: set[str]
) -> None:
    loaded = loaded_modules(*arguments)
    assert "typer" in loaded
    assert loaded.isdisjoint({*HEAVY, "loadtest", *later})


def chained(first: Exception, second: Exception) -> Exception:
    first.__context__ = second
    return first


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    "error",
    [
        FULL,
        OSError(errno.EFBIG, "File too large", "bundle/segments/01.onnx"),
        chained(RuntimeError("unexpected pos 64 vs 0"), FULL),  # PyTorch
        ValueError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
def test_full_disk_is_one_sentence_with_what_is_kept(error: Exception) -> None:
    message = expected_message(error)
    assert message is not None
    assert "the disk is full" in message
    assert message.endswith("what was there before is kept")
    error.add_note("3 texts are kept: --resume goes on")
    assert str(expected_message(error)).endswith("3 texts are kept: --resume goes on")
    del error.__notes__


@pytest.mark.parametrize(
    ("value", "message"),
    [("1", "no such folder"), ("0", "give --keys FILE"), ("", "give --keys FILE")],
)
def test_variables_stand_for_the_options_of_access(
    value: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The image's command has no other way to be told.
    monkeypatch.setenv("OFFRAMP_NO_AUTH", value)
    monkeypatch.setenv("OFFRAMP_KEYS", "")
    status, _, said = run_offramp("serve", "/nowhere", "--standalone", "--host", "0.0.0.0")
    assert status == 2
    assert message in said


def test_serving_loads_neither_torch_nor_the_packages_above(bundle_folder: Path) -> None:
    program = (
        "import sys\n"
        "from serve.config import ServerConfig\n"
        "from serve.standalone import build_standalone_app\n"
        "import serve.app\n"
        f"build_standalone_app(ServerConfig(bundles=[{str(bundle_folder)!r}]))\n"
        "print('LOADED', *{name.partition('.')[0] for name in sys.modules})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.rpartition("LOADED")[2].split())
    assert {"serve", "onnxruntime", "ray"} <= loaded
    assert loaded.isdisjoint({*HEAVY, "export", "models", "loadtest"})


def test_version_and_help_are_told() -> None:
    assert run_offramp("--version") == (0, f"offramp {__version__}\n", "")
    status, text, _ = run_offramp_alone("--help")
    names = ("serve", "export", "train", "evaluate", "policy", "rollout", "top")
    assert (status, [name for name in names if name not in text]) == (0, [])
    for arguments, status, named in (
        ((), 2, ("Usage: ", "serve")),
        (("serve", "--help"), 0, ("--standalone", "--port", "--replicas", "--limits")),
    ):
        ended, text, error = run_offramp(*arguments)
        assert ended == status
        assert all(name in text + error for name in named)


@pytest.mark.parametrize("more", [(), ("--standalone",)])
def test_error_is_one_line_and_status_2(tmp_path: Path, more: tuple[str, ...]) -> None:
    status, text, error = run_offramp("serve", tmp_path / "nowhere", "--port", "0", *more)
    assert (status, text) == (2, "")
    where = f"{tmp_path}/nowhere"
    assert error == f"offramp: {where}: no such folder; `offramp export` writes one\n"


@pytest.mark.parametrize(
    "arguments",
    ["serve", "serve x --port 70000", "serve x --replicas 0", "serve x --precision fp8", "fly"],
)
def test_wrong_usage_is_status_2_without_a_traceback(arguments: str) -> None:
    status, _, error = run_offramp(*arguments.split())
    assert status == 2
    assert "Traceback" not in error


def test_ctrl_c_while_commands_are_loaded_is_no_traceback() -> None:
    program = (
        "import os, signal\n"
        "from serve import cli\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "cli.entry_points = lambda group: os.kill(os.getpid(), signal.SIGINT)\n"
        "cli.main()\n"
    )
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "")
