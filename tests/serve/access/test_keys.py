import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from pathlib import Path
from typing import Self, cast, get_args

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from serve.access.cli import keys
from serve.access.gate import Gate
from serve.access.keys import (
    InvalidKeys,
    Key,
    Scope,
    hash_of,
    new_key,
    read_keys,
    revoke_key,
)
from serve.errors import Forbidden, Unauthorized
from tests.support.patience import until

ONE_KEY = json.dumps({"name": "a", "sha256": "1" * 64, "scopes": ["read"]})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def add(file: Path, name: str = "web", scope: Scope = "classify") -> str:
    return new_key(Key(name=name, sha256="0" * 64, scopes=(scope,)), file)


def test_file_holds_a_hash_that_only_its_owner_may_read(file: Path) -> None:
    secret = add(file)
    assert len(secret) > 40
    assert secret.removeprefix("offramp_") not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [key.sha256 for key in read_keys(file)] == [hash_of(secret)]


def test_file_keeps_its_mode_its_owner_and_its_place_or_stays_as_it_is(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The server may run as another user, such as the one of the image.
    add(file)
    file.chmod(0o644)
    link = file.with_name("link.json")
    link.symlink_to(file)
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "fchown", lambda _, *owner: given.append(owner))
    add(link, "ops")
    assert link.is_symlink()
    assert given == [(file.stat().st_uid, file.stat().st_gid)]
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    before = file.read_bytes()

    def refuse(*_: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchown", refuse)
    with pytest.raises(InvalidKeys):
        revoke_key("ops", file)
    assert (file.read_bytes(), len(list(file.parent.iterdir()))) == (before, 2)


def test_commands_at_once_lose_no_change(file: Path) -> None:
    add(file, "old")
    names = [f"k{number}" for number in range(16)]
    with ThreadPoolExecutor(len(names) + 1) as pool:
        gone = pool.submit(revoke_key, "old", file)
        list(pool.map(lambda name: add(file, name), names))
        gone.result()
    assert sorted(key.name for key in read_keys(file)) == sorted(names)


def test_revoked_key_is_gone_and_the_others_stay(file: Path) -> None:
    add(file, "web"), add(file, "ops", "admin")
    revoke_key("web", file)
    assert [key.name for key in read_keys(file)] == ["ops"]
    with pytest.raises(InvalidKeys):
        revoke_key("web", file)
    with pytest.raises(InvalidKeys):
        add(file, "ops")


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"keys": [{"name": "a"}]}',
        '{"keys": [{"name": "a b", "sha256": "x", "scopes": ["all"]}]}',
        f'{{"keys": [{ONE_KEY}, {ONE_KEY}]}}',
    ],
)
def test_file_that_makes_no_sense_is_refused_in_one_line(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(InvalidKeys) as raised:
        read_keys(file)
    assert "\n" not in str(raised.value)


def test_file_that_others_may_write_and_link_to_itself_are_refused(file: Path) -> None:
    add(file, "ops")
    file.chmod(0o666)
    with pytest.raises(InvalidKeys):
        read_keys(file)
    file.unlink()
    file.symlink_to(file.name)
    with pytest.raises(InvalidKeys):
        add(file, "ops")


@pytest.mark.parametrize("scope", get_args(Scope))
def test_key_may_do_what_its_scope_says(file: Path, scope: Scope) -> None:
    secret = add(file, scope=scope)
    gate = Gate(file)
    client = gate.identify(secret, "10.0.0.1")
    assert (client.name, client.identity) == ("web", "key:web")
    for wanted in get_args(Scope):
        if scope in (wanted, "admin"):
            gate.check(client, wanted)
        else:
            with pytest.raises(Forbidden):
                gate.check(client, wanted)


def test_without_a_key_or_with_a_wrong_one_nothing_is_allowed(file: Path) -> None:
    secret = add(file)
    gate = Gate(file)
    with pytest.raises(Unauthorized):
        gate.check(gate.identify(None, "10.0.0.1"), "read")
    for wrong in ("", "x", secret[:-1], secret + "x", hash_of(secret), "x" * 100_000, "\ud800"):
        with pytest.raises(Unauthorized):
            gate.identify(wrong, "10.0.0.1")


def test_changes_of_the_file_apply_while_running_and_a_broken_file_changes_nothing(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("serve.access.gate._RELOAD_EVERY_S", 0)
    first = add(file)
    gate = Gate(file)
    second = add(file, "ops", "admin")
    assert gate.identify(second, "").name == "ops"
    file.write_text("{")
    assert gate.identify(first, "").name == "web"
    assert "the keys stay as they were" in caplog.text
    file.write_text('{"keys": []}')
    until(lambda: not _passes(gate, first))


def test_file_that_cannot_be_opened_now_is_read_later_unchanged(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("serve.access.gate._RELOAD_EVERY_S", 0)
    secret = add(file)
    gate = Gate(file)
    revoke_key("web", file)

    def too_many(path: Path) -> tuple[Key, ...]:
        raise InvalidKeys(f"{path}: Too many open files")

    with monkeypatch.context() as now:
        now.setattr("serve.access.gate.read_keys", too_many)
        assert [_passes(gate, secret) for _ in range(3)] == [True] * 3
    assert caplog.text.count("Too many open files") == 1
    assert not _passes(gate, secret)


def test_change_that_leaves_time_and_size_as_they_were_is_noticed(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As chmod does, after which a file that could not be read can be.
    monkeypatch.setattr("serve.access.gate._RELOAD_EVERY_S", 0)
    secret = add(file)
    gate, before = Gate(file), file.stat()
    file.write_text(file.read_text().replace('"web"', '"app"'))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert gate.identify(secret, "").name == "app"


def test_folder_that_kubernetes_swaps_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A mounted Secret: keys.json -> ..data/keys.json, and a change makes ..data point elsewhere.
    monkeypatch.setattr("serve.access.gate._RELOAD_EVERY_S", 0)
    (tmp_path / "1").mkdir(), (tmp_path / "2").mkdir()
    first, second = add(tmp_path / "1" / "keys.json"), add(tmp_path / "2" / "keys.json")
    data = tmp_path / "..data"
    data.symlink_to("1")
    (tmp_path / "keys.json").symlink_to("..data/keys.json")
    gate = Gate(tmp_path / "keys.json")
    assert _passes(gate, first)
    (tmp_path / "new").symlink_to("2")
    (tmp_path / "new").replace(data)
    assert _passes(gate, second)
    assert not _passes(gate, first)


def test_a_key_ends_at_its_time_while_the_server_runs(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"name": "web", "sha256": "0" * 64, "scopes": ["classify"], "expires": "2030-01-31"}
    secret = new_key(Key.model_validate(fields), file)
    now = datetime(2030, 1, 30, 23, 59, tzinfo=UTC)
    gate = Gate(file)

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cast("Self", now)

    monkeypatch.setattr("serve.access.keys.datetime", Clock)
    assert gate.identify(secret, "").name == "web"
    now += timedelta(minutes=1)
    with pytest.raises(Unauthorized):
        gate.identify(secret, "")


@pytest.mark.parametrize("scopes", [["read"], ["admin"], ["classify", "read"]])
@pytest.mark.parametrize("bound", ["models", "profiles"])
def test_a_bound_key_can_neither_read_nor_change_policies(bound: str, scopes: list[str]) -> None:
    fields = {"name": "web", "sha256": "0" * 64, "scopes": scopes, bound: ["x"]}
    with pytest.raises(ValidationError):
        Key.model_validate(fields)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("soon", "--expires: 'soon' is neither a time such as 90d"),
        ("2030-13-01", "--expires: '2030-13-01' is neither"),
        ("2020-01-31", "--expires: 2020-01-31 is over already"),
        ("0d", "--expires: 0d is over already"),
    ],
)
def test_an_end_that_is_none_is_refused(file: Path, text: str, said: str) -> None:
    made = CliRunner().invoke(keys, ["new", "web", "--file", str(file), "--expires", text])
    assert str(made.exception).startswith(said)
    assert not file.exists()


def test_commands_bind_keys(file: Path) -> None:
    run = partial(CliRunner().invoke, keys, catch_exceptions=False)
    bound = ["--model", "a", "--profile", "p", "--profile", "q", "--expires", "30m"]
    run(["new", "web", "--file", str(file), *bound])
    (key,) = read_keys(file)
    assert (key.models, key.profiles) == (("a",), ("p", "q"))
    assert key.expires is not None
    assert key.expires - datetime.now(UTC) < timedelta(minutes=30)
    head, row = run(["list", "--file", str(file)]).output.splitlines()
    listed = dict(zip(head.split("\t"), row.split("\t"), strict=True))
    models, profiles, expires = listed["LIMITS"].split()
    assert (models, profiles) == ("models=a", "profiles=p,q")
    assert expires.startswith("expires=20")


def _passes(gate: Gate, secret: str) -> bool:
    try:
        return bool(gate.identify(secret, ""))
    except Unauthorized:
        return False


def test_commands_make_list_and_revoke_keys(file: Path) -> None:
    run = partial(CliRunner().invoke, keys)
    made = run(["new", "web", "--file", str(file), "--rows-per-s", "5", "--scope", "read"])
    assert [key.sha256 for key in read_keys(file)] == [hash_of(made.stdout.strip())]
    head, row = run(["list", "--file", str(file)]).stdout.splitlines()
    listed = dict(zip(head.split("\t"), row.split("\t"), strict=True))
    assert (listed["NAME"], listed["LIMITS"]) == ("web", "rows_per_s=5")
    refused = run(["new", "a", "--file", str(file), "--scope", "all"])
    assert str(refused.exception).startswith("scopes[0]: must be 'classify', 'read' or 'admin'")
    assert run(["revoke", "web", "--file", str(file)]).exit_code == 0
    assert not read_keys(file)
