import json
import sys
from pathlib import Path

import pytest

from tests.serve.commands.conftest import Offramp, Ran

NEVER = "default: {rule: never}\n"


@pytest.fixture
def edit(here: Offramp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Offramp:
    """Run `edit` with an editor that is a piece of Python; `file` is what it edits."""

    def run(program: str, *words: str) -> Ran:
        script = tmp_path / "an editor.py"
        script.write_text(f"import pathlib, sys\nfile = pathlib.Path(sys.argv[1])\n{program}\n")
        monkeypatch.setenv("VISUAL", f"{sys.executable} '{script}'")
        return here("policy", "edit", *words)

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return run


def kept(folder: Path) -> list[Path]:
    return list(folder.glob("offramp-policy-*"))


def live_version(here: Offramp) -> int:
    return int(json.loads(here("policy", "show", "--json").said)["version"])


def test_what_is_saved_becomes_the_policy(edit: Offramp, here: Offramp, tmp_path: Path) -> None:
    assert edit("pass").error == "Nothing was changed.\n"
    ran = edit(f"file.write_text({NEVER!r})", "--yes", "--why", "in doubt")
    assert ran.status == 0
    assert ran.said.startswith("version 2  tiny")
    assert "in doubt" in here("policy", "show").said
    assert not kept(tmp_path)


@pytest.mark.parametrize(
    ("program", "status", "message"),
    [
        ("sys.exit(3)", 1, "has ended with status 3; nothing was changed"),
        ("file.unlink()", 2, "No such file"),
    ],
)
def test_an_editor_that_fails_changes_nothing(
    edit: Offramp, here: Offramp, tmp_path: Path, program: str, status: int, message: str
) -> None:
    ran = edit(program, "--yes")
    assert ran.status == status
    assert message in ran.error
    assert live_version(here) == 1
    assert not kept(tmp_path)


@pytest.mark.parametrize(
    ("written", "status", "message"),
    [
        ("default: {rule: never}\nprofiles:\n  a: 1\n  a: 2\n", 1, "line 4, column 3: 'a' comes"),
        ("default: {rule: nevr}\n", 1, "unknown rule 'nevr'"),
    ],
)
def test_what_cannot_be_put_is_kept(
    edit: Offramp, here: Offramp, tmp_path: Path, written: str, status: int, message: str
) -> None:
    ran = edit(f"file.write_text({written!r})", "--yes")
    assert ran.status == status
    assert message in ran.error
    [file] = kept(tmp_path)
    assert f"kept: offramp policy diff {file}" in ran.error
    assert file.read_text() == written
    assert live_version(here) == 1


def test_a_change_by_another_in_the_meantime_is_a_conflict(
    edit: Offramp, here: Offramp, tmp_path: Path
) -> None:
    meantime = (
        "import os, urllib.request as r\n"
        "url = os.environ['OFFRAMP_URL'] + '/v1/models/tiny/policy'\n"
        'body = b\'{"version": 1, "policy": {"default": {"rule": "layer", "layer": 2}}}\'\n'
        "head = {'Content-Type': 'application/json'}\n"
        "r.urlopen(r.Request(url, body, head, method='PUT')).read()\n"
        f"file.write_text({NEVER!r})"
    )
    ran = edit(meantime, "--yes")
    assert ran.status == 3
    assert [file.read_text() for file in kept(tmp_path)] == [NEVER]
    assert live_version(here) == 2
