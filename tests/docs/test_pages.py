"""The commands in the documentation do what the text around them says."""

import os
import re
import runpy
import shlex
import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path

import pytest

from loadtest.http import console
from loadtest.http.server_process import free_port
from serve.cli import main
from serve.rules import EXIT_RULE
from tests.support.tiny import WORDS, write_tiny_classifier

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md")])
TIMEOUT_S = 300.0


def blocks(page: Path, mark: str) -> list[str]:
    """Return the page's fenced blocks of this kind, without the indent of lists."""
    found = re.findall(rf"^( *)```{mark}\n(.*?)^\1```$", page.read_text("utf-8"), re.M | re.S)
    return [textwrap.dedent(text) for _, text in found]


def script_of(page: str) -> str:
    """Return a page's blocks as one shell script."""
    return "\n".join(blocks(ROOT / "docs" / page, "sh"))


def run(script: str, folder: Path) -> str:
    """Run a script in one shell, on a free port instead of 8000."""
    script = "set -euo pipefail\n" + script.replace("8000", str(free_port()))
    with (folder / "err.txt").open("w") as errors:
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert done.returncode == 0, (folder / "err.txt").read_text()[-2000:] + done.stdout[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of bundles, which the first page that needs one fills."""
    made = ROOT / "bundles"
    return made if made.exists() else tmp_path_factory.mktemp("bundles")


@pytest.fixture
def project(tmp_path: Path, bundles: Path) -> Path:
    """Return a copy of the project made of links, so that no test writes into the project."""
    for name in (".venv", "Makefile", "helm", "models", "export", "constraints.txt"):
        if (ROOT / name).exists():
            (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "pyproject.toml").symlink_to(ROOT / "pyproject.toml")
    (tmp_path / "bundles").symlink_to(bundles)
    return tmp_path


@pytest.fixture
def classifier(tmp_path: Path) -> Path:
    sizes = {"num_hidden_layers": 3, "intermediate_size": 48, "max_position_embeddings": 160}
    return write_tiny_classifier(tmp_path / "classifier", **sizes, initializer_range=0.02)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    rows = [f"{i % 3}\t{WORDS[i]} {WORDS[2 * i]} {WORDS[i + 1]}" for i in range(48)]
    for name in ("train", "dev"):
        (folder / f"{name}.tsv").write_text("\n".join(["label\ttext_a", *rows, ""]))
    texts = [f"{WORDS[i]} {WORDS[j]}" for i in range(30) for j in range(30)]
    (folder / "traffic.txt").write_text("\n".join([*texts, ""]))
    return folder


@pytest.mark.nightly
def test_bring_your_own_model(
    tmp_path: Path, classifier: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The commands before `serve` need PyTorch, which this process has imported already.
    before, after = script_of("bring-your-own-model.md").split("offramp serve", 1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLASSIFIER", str(classifier))
    monkeypatch.setenv("ENCODER", str(classifier))
    monkeypatch.setenv("DATA", str(data))
    monkeypatch.setenv("PATH", f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}")
    for command in filter(None, before.replace("\\\n", "").splitlines()):
        monkeypatch.setattr(sys, "argv", shlex.split(os.path.expandvars(command)))
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code, command
    answers = run("offramp serve" + after, tmp_path)
    assert '"layers":3' in answers
    assert '"reason":"final"' in answers, "rule never"
    assert '"exits":[' in answers
    assert '"exit_rule":' in answers


@pytest.mark.nightly
@pytest.mark.parametrize("page", ["deployment.md", "operations.md"])
def test_operators_pages(page: str, project: Path) -> None:
    said = run(script_of(page), project)
    assert '"label":"positive"' in said
    if page == "deployment.md":
        statuses = [line for line in said.splitlines() if re.fullmatch(r"\d{3}", line)]
        assert statuses == ["401", "200"]


def rules() -> set[str]:
    """Return every exit rule that any page shows, as JSON."""
    of_rules = re.compile(r'\{"rule": [^{}]*(?:\{[^{}]*\}[^{}]*)?\}')
    return {found for page in PAGES for found in of_rules.findall(page.read_text("utf-8"))}


@pytest.mark.parametrize("shown", sorted(rules()))
def test_rules_that_pages_show_are_rules(shown: str) -> None:
    EXIT_RULE.validate_json(shown)


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yield (page, words) of every command of ours that any page shows."""
    ours = re.compile(r"^ *(?:[$] )?(?:\S*/)?(offramp [a-z].*|python -m loadtest\..*)$", re.M)
    for page in PAGES:
        for line in ours.findall(page.read_text("utf-8").replace("\\\n", " ")):
            if "[" not in line and "..." not in line:
                yield page.name, shlex.split(line.partition("#")[0].rstrip(" &"))


@pytest.mark.parametrize(
    ("page", "words"), [pytest.param(*c, id=f"{c[0]} {' '.join(c[1])[:60]}") for c in commands()]
)
@pytest.mark.filterwarnings("ignore:.*found in sys.modules")  # of modules that are run
def test_options_that_pages_show_exist(page: str, words: list[str]) -> None:
    is_group = words[0] == "offramp" and words[1] in ("elue", "keys", "models", "policy", "rollout")
    grouped = is_group or words[0] == "python"
    name = words[: 3 if grouped else 2]
    shown = {word.partition("=")[0] for word in words[len(name) :] if word.startswith("--")}
    missing = shown - set(re.findall(r"--[\w-]+", _help(*name)))
    assert not missing, f"{page}: {' '.join(name)} has no such options"


@cache
def _help(*command: str) -> str:
    """Return a command's help; it runs in this process, which has imported all it needs."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as said:
        patch.setattr(console, "interrupt_on_signals", lambda: None)
        patch.setenv("COLUMNS", "200")
        is_module = command[0] == "python"
        patch.setattr(sys, "argv", [*command[: 1 if is_module else 3], "--help"])
        with pytest.raises(SystemExit) as ended:
            runpy.run_module(command[2], run_name="__main__") if is_module else main()
        assert not ended.value.code
    return said.getvalue()
