"""Ways around what a key is bound to and what a policy locks, in every dialect and over gRPC."""

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest

from serve.classifier.classification import Classification
from serve.classifier.classifier import Classifier
from serve.policy.live import Live
from serve.rules.criterion import Reason
from tests.serve.http.grpc.conftest import asked, stub
from tests.serve.support.keys import make_key
from tests.serve.support.live_server import LiveServer, serving_grpc
from tests.serve.support.spoken import (
    BASIC,
    CONTENTS,
    GUARDS,
    LABEL,
    LONG,
    MODERATIONS,
    PARAMETERS,
    SPEAK,
    Dial,
    layer_of,
    naming,
)

GRPC = "gRPC"
WAYS = [*SPEAK, GRPC]
HEADERS_ALONE = {"/predict", "/invocations", "/models/tiny/predict"}
# What each dialect calls `truncate`.
TRUNCATE: dict[str, Dial] = {
    "/": {"truncation": True},
    "/models/tiny": {"truncation": True},
    "/classify": {"truncate_prompt_tokens": -1},
}
RULE, TARGET = {"rule": "layer", "layer": 1}, {"target": {"max_layers": 1}}
PROFILES = {
    "guard": {
        "exit": {"rule": "layer", "layer": 2},
        "flag": {LABEL: 0.0},
        "windows": {},
        "special_tokens": "text",
    },
    "lax": {"exit": RULE, "flag": {LABEL: 1.0}},
    "bare": RULE,
    "unwindowed": {"flag": {LABEL: 0.0}},
}


class Said(NamedTuple):
    """An answer: the status of HTTP, the layer of the exit, and all that it says."""

    status: int
    layer: str
    text: str


class Locked:
    """A server whose keys are bound, or not."""

    def __init__(self, live: LiveServer, keys: dict[str, str]) -> None:
        self.live, self.keys = live, keys

    def set(self, default: Any = "bare", **limits: Any) -> None:
        """Put a policy with all profiles."""
        policy = {"default": default, "profiles": PROFILES, "limits": limits}
        self.live.http.headers["X-API-Key"] = self.keys["ops"]
        put = self.live.put_policy(policy)
        assert put.status_code == 200, put.text

    def ask(
        self, way: str, key: str, dial: Dial | None = None, *, text: str = "w1", **headers: str
    ) -> Said:
        """Ask as a client of a dialect would; `headers` are those of the dial, or others."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if way == GRPC:
            return self._call(self.keys[key], asked([text]), dial or {}, sent)
        return self.post(way, SPEAK[way](dial or {}, text), key, sent)

    def post(self, way: str, body: Any, key: str, headers: Dial | None = None) -> Said:
        sent = {**(headers or {}), "X-API-Key": self.keys[key]}
        answer = self.live.http.post(way, json=body, headers=sent)
        layer = layer_of(way, answer) if answer.is_success else ""
        return Said(answer.status_code, layer, answer.text)

    def _call(self, secret: str, request: Any, dial: Dial, headers: dict[str, str]) -> Said:
        for name, value in dial.items():
            held = request.parameters[name]
            if isinstance(value, bool):
                held.bool_param = value
            else:
                held.string_param = value if isinstance(value, str) else json.dumps(value)
        metadata = [("x-api-key", secret), *((k.lower(), v) for k, v in headers.items())]
        with stub(self.live.grpc_address) as call:
            try:
                answer = call.ModelInfer(request, metadata=metadata)
            except grpc.RpcError as error:
                return Said(STATUSES[error.code()], "", error.details() or "")
        for output in answer.outputs:
            if output.name == "exit_layer":
                return Said(200, str(output.contents.int_contents[0]), str(answer))
        raise AssertionError(answer)


STATUSES = {
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.INVALID_ARGUMENT: 422,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}


@pytest.fixture(scope="module")
def server(bundle_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    folder = tmp_path_factory.mktemp("keys")
    past = datetime.now(UTC) - timedelta(seconds=1)
    kinds: dict[str, dict[str, Any]] = {
        "ops": {"scopes": ["admin"]},
        "free": {},
        "bound": {"models": ["tiny", "other"], "profiles": ["guard", "bare"]},
        "elsewhere": {"models": ["other"]},
        "unwindowed": {"profiles": ["unwindowed"]},
        "lax": {"profiles": ["lax"]},
        "old": {"expires": past},
    }
    keys = {
        name: make_key(folder, *more.pop("scopes", ["classify"]), name=name, **more)
        for name, more in kinds.items()
    }
    with serving_grpc(bundle_folder, keys=folder / "keys.json") as live:
        yield Locked(live, keys)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("limits", [{"overrides": "none"}, {}])
def test_a_bound_key_gets_its_profile_and_no_other(
    server: Locked, way: str, limits: dict[str, str]
) -> None:
    server.set(**limits)  # the operator has chosen the profile, so it is no override
    said = server.ask(way, "bound")
    assert (said.status, said.layer) == (200, "2"), said
    assert server.ask(way, "bound", X_Offramp_Exit="guard").status == 200
    refused = []
    for choice in ("lax", RULE, TARGET, {"target": {"max_layers": 4}}):
        text = choice if isinstance(choice, str) else json.dumps(choice)
        refused.append(server.ask(way, "bound", X_Offramp_Exit=text))
        if way not in HEADERS_ALONE:
            refused.append(server.ask(way, "bound", {"exit": choice}))
    if way in GUARDS:
        dials: list[Dial] = [{"profile": "lax"}, {"profile": None, "exit": RULE}]
        refused += [server.ask(way, "bound", dial) for dial in dials]
    if way == CONTENTS:
        refused.append(server.ask(way, "bound", detector_id="lax"))
    assert {said.status for said in refused} == {403}, refused


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("said", ["false", '{"max_disagreement": 0.01}'])
def test_a_bound_key_has_no_word_on_overload(server: Locked, way: str, said: str) -> None:
    server.set("guard")
    assert server.ask(way, "bound", X_Offramp_Degrade=said).status == 403
    assert server.ask(way, "free", X_Offramp_Degrade=said).status == 200
    server.set("guard", overrides="none")
    assert server.ask(way, "free", X_Offramp_Degrade=said).status == 403


@pytest.mark.parametrize("way", [*WAYS, "/tokenize", "/models/tiny/tokenize"])
def test_a_key_asks_the_models_alone_that_it_is_bound_to(server: Locked, way: str) -> None:
    server.set("guard")
    if way.endswith("/tokenize"):
        headers = {"X-API-Key": server.keys["elsewhere"]}
        answer = server.live.http.post(way, json={"inputs": "w1"}, headers=headers)
        said = Said(answer.status_code, "", answer.text)
    else:
        said = server.ask(way, "elsewhere")
    assert said.status == 403, said


@pytest.mark.parametrize("way", WAYS)
def test_an_expired_key_is_refused_and_told_so(server: Locked, way: str) -> None:
    assert server.ask(way, "old").status == 401


@pytest.mark.parametrize("way", [way for way in WAYS if way not in GUARDS])
def test_windows_of_the_profile_are_kept_where_requests_may_not_choose(
    server: Locked, way: str
) -> None:
    dial = TRUNCATE.get(way, {"truncate": True})
    server.set("guard")
    assert server.ask(way, "free", dial, text=LONG).status == 200
    assert server.ask(way, "bound", dial, text=LONG).status == 403
    server.set("guard", windows="none")
    assert server.ask(way, "free", dial, text=LONG).status == 403
    assert server.ask(way, "free", text=LONG).status == 200


@pytest.mark.parametrize("way", [way for way in WAYS if way not in GUARDS])
def test_the_end_of_a_text_is_not_cut_off_unread_where_a_flag_is_kept(
    server: Locked, way: str
) -> None:
    dial = TRUNCATE.get(way, {"truncate": True})
    for default, key, limits, status in (
        ("unwindowed", "free", {}, 200),
        ("unwindowed", "free", {"windows": "none"}, 403),
        ("unwindowed", "unwindowed", {"windows": "any"}, 403),
        ("bare", "free", {"windows": "none"}, 200),
    ):
        server.set(default, **limits)
        said = server.ask(way, key, dial, text=LONG)
        assert said.status == status, (default, key, limits, said)
        assert server.ask(way, key, text=LONG).status in (400, 422)


@pytest.mark.parametrize("way", WAYS)
def test_a_deadline_is_no_way_to_an_early_exit_where_a_flag_is_kept(
    server: Locked, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_time = Classifier.classify

    async def late(self: Classifier, request: Classification, live: Live) -> None:
        await in_time(self, request, live)
        request.answers = [each._replace(reason=Reason.DEADLINE) for each in request.answers]

    monkeypatch.setattr(Classifier, "classify", late)
    for default, key, limits, status in (
        ("lax", "free", {}, 504 if way in GUARDS else 200),
        ("lax", "free", {"flag": "none"}, 504),
        ("lax", "lax", {"flag": "any"}, 504),
        ("unwindowed", "unwindowed", {}, 200),  # whose text is flagged
    ):
        server.set(default, **limits)
        said = server.ask(way, key, X_Offramp_Timeout_Ms="60000")
        assert said.status == status, (default, key, limits, said)
    if way in GUARDS:
        assert server.ask(way, "lax", text=" ").status == 200  # nothing of it is undecided
    if way == CONTENTS:  # whose client compares the scores with a higher threshold of its own
        assert server.ask(way, "unwindowed", {"threshold": 1.0}).status == 504


@pytest.mark.parametrize(
    ("setting", "dial"),
    [
        ("flag", {"flag": {LABEL: 1.0}}),
        ("windows", {"windows": {"stride": 1, "combine": "mean"}}),
        ("unchecked", {"unchecked": ["images"]}),
        ("special_tokens", {"special_tokens": "ids"}),
    ],
)
@pytest.mark.parametrize("way", ["/v1/classify", *GUARDS])
def test_settings_are_chosen_as_the_limits_say(
    server: Locked, way: str, setting: str, dial: Dial
) -> None:
    if setting == "unchecked" and way != BASIC:
        pytest.skip("has no such field")
    for key, limit, status in (
        ("free", "any", 200),
        ("free", "none", 403),
        ("free", None, 403 if way in GUARDS else 200),
        ("bound", "any", 403),
    ):
        server.set("guard", **({setting: limit} if limit else {}))
        said = server.ask(way, key, dial)
        assert said.status == status, (key, limit, said)
        assert server.ask(way, key).status == 200


@pytest.mark.parametrize("default", ["guard", "bare", {"rule": "never"}])
@pytest.mark.parametrize("way", GUARDS)
@pytest.mark.parametrize("key", ["free", "bound"])
def test_nothing_in_a_guardrails_parameters_weakens_its_profile(
    server: Locked, way: str, default: Any, key: str
) -> None:
    server.set(default)
    own: list[Dial] = [
        {"flag": {LABEL: 1.0}},
        {"flag": {LABEL: 1.0}, "profile": "bare"},
        {"flag": {LABEL: 1.0}, "profile": None, "exit": RULE},
        {"flag": {"positive": 1.0}, "threshold": 1.0},
        {"exit": RULE, "profile": None},
        {"exit": TARGET, "profile": None},
        {"exit": {"rule": "never", "min_layer": 1, "max_layer": 1}, "profile": None},
        {"windows": {"combine": "mean"}},
        {"windows": {"stride": 0}, "threshold": 1.0},
        {"special_tokens": "ids"},
        {"special_tokens": "ids", "profile": None},
    ]
    for dial in own:
        said = server.ask(way, key, {"profile": "guard", **dial})
        assert said.status == 403, (dial, said)
    said = server.ask(way, key, {"flag": {LABEL: 1.0}}, X_Offramp_Exit=json.dumps(RULE))
    assert said.status == 403, said
    raised = server.ask(way, key, {"profile": "guard", "threshold": 1.0})
    if way in (BASIC, MODERATIONS):
        assert raised.status == 403
    else:  # whose clients compare the scores themselves
        assert json.loads(raised.text)[0][0]["detection_type"] == LABEL


def test_a_locked_flag_is_kept_also_where_no_profile_has_one(server: Locked) -> None:
    server.live.http.headers["X-API-Key"] = server.keys["ops"]
    for limit, layer, number in ((None, "1", 0), ("none", "4", 3)):
        limits = {"flag": limit} if limit else {}
        put = server.live.put_policy({"default": {"rule": "never"}, "limits": limits})
        assert put.status_code == 200, put.text
        said = server.ask(CONTENTS, "free", {"threshold": 1.0})
        assert len(json.loads(said.text)[0]) == number
        for dial in ({"exit": RULE}, {"flag": {LABEL: 1.0}}):
            said = server.ask(CONTENTS, "free", dial)
            assert said.status == (403 if limit else 200), said
        said = server.ask(CONTENTS, "free", X_Offramp_Exit=json.dumps(RULE))
        assert (said.status, said.layer) == ((403, "") if limit else (200, layer)), said


IDS = {"name": "input_ids", "shape": [1, 3], "datatype": "INT64", "data": [2, 0, 3]}


@pytest.mark.parametrize(
    ("way", "body"),
    [
        ("/v1/classify", {"inputs": ["w1", {"input_ids": [2, 0, 3]}]}),
        ("/classify", {"input": [[2, 0, 3]]}),
        ("/v2/models/tiny/infer", {"inputs": [IDS]}),
    ],
)
def test_token_ids_are_no_way_around_special_tokens_as_text(
    server: Locked, way: str, body: Any
) -> None:
    headers = {"X-API-Key": server.keys["free"]}
    for default, refused in (("bare", False), ("guard", True)):
        server.set(default)
        answer = server.live.http.post(way, json=body, headers=headers)
        assert answer.is_success is not refused, answer.text


def test_a_profile_says_what_passes_unchecked(server: Locked) -> None:
    body = {"texts": ["w1"], "input_type": "request", "tools": [{"x": 1}]}
    headers = {"X-API-Key": server.keys["free"]}
    for unchecked, status in ((["tools"], 200), (None, 422)):
        guard = {"flag": {LABEL: 0.5}, **({"unchecked": unchecked} if unchecked else {})}
        server.live.http.headers["X-API-Key"] = server.keys["ops"]
        put = server.live.put_policy({"default": "guard", "profiles": {"guard": guard}})
        assert put.status_code == 200, put.text
        answer = server.live.http.post(BASIC, json=body, headers=headers)
        assert answer.status_code == status, answer.text
    own = {**body, PARAMETERS: {"unchecked": ["tools"]}}
    assert server.live.http.post(BASIC, json=own, headers=headers).status_code == 403


@pytest.mark.parametrize("key", ["free", "bound"])
def test_a_detector_is_no_way_around_a_key_and_none_is_an_override(
    server: Locked, key: str
) -> None:
    server.live.http.headers["X-API-Key"] = server.keys["ops"]
    policy = {"default": "bare", "profiles": PROFILES, "limits": {"overrides": "none"}}
    detectors = {"strict": "guard", "loose": "lax", "usual": "default"}
    put = server.live.put_policy({**policy, "detectors": detectors})
    assert put.status_code == 200, put.text
    assert server.ask(CONTENTS, key, detector_id="strict").layer == "2"
    for detector in detectors:
        said = server.ask(CONTENTS, key, detector_id=detector, X_Offramp_Exit="guard")
        assert said.status == 422, said
    said = server.ask(CONTENTS, key, detector_id="loose")
    assert said.status == (200 if key == "free" else 403), said
    said = server.ask(CONTENTS, key, detector_id="guard")  # a profile's own name is an override
    assert said.status == (403 if key == "free" else 200), said


def test_a_bound_key_learns_of_no_models_profiles_or_detectors_but_its_own(
    bundle_folder: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(bundle_folder, tmp_path / "other")
    keys = {
        "ops": make_key(tmp_path, "admin"),
        "bound": make_key(tmp_path, "classify", models=["tiny"], profiles=["guard"]),
    }
    with serving_grpc(bundle_folder, other, keys=tmp_path / "keys.json") as live:
        server = Locked(live, keys)
        live.http.headers["X-API-Key"] = keys["ops"]
        detectors = {"strict": "guard", "loose": "lax"}
        policy = {"default": "bare", "profiles": PROFILES, "detectors": detectors}
        for model in ("tiny", "other"):
            assert live.put_policy(policy, model).status_code == 200
        for way in WAYS:
            assert server.ask(way, "bound").layer == "2"  # of several models it means its own
        assert server.ask(CONTENTS, "bound", detector_id="strict").layer == "2"
        names = ("other", "none")
        ways = [each for name in names for each in naming(name)]
        refused = [server.post(way, body, "bound") for way, body in ways]
        assert {said.status for said in refused} == {403}
        refused += [server.ask(CONTENTS, "bound", detector_id=name) for name in names]
        assert "models are tiny. " in refused[-1].text
        for said in refused:
            assert not any(word in said.text for word in ("other (", ", other", "lax", "loose"))
