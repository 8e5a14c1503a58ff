import pytest

from loadtest.bench.front.stages import Stage, shares, stage_of

_REQUEST = (
    "serve.api.front:__call__",
    "serve.http.exchange:_run",
)


@pytest.mark.parametrize(
    ("inner", "stage"),
    [
        (("tokenizers:_", "serve.tokenization.tokenizer:encode_batch"), Stage.TOKENIZE),
        (("re:f", "serve.http.head:read_head"), Stage.READ),
        (("serve.http.answer:answer_head", "serve.http.exchange:send"), Stage.WRITE),
        (("numpy:exp", "serve.rules.signals:softmax", "serve.api.scores:f"), Stage.ANSWER),
        (("uuid:f", "serve.api.record:new_request_id"), Stage.RECORD),
        (("serve.rules.registry:f", "serve.policy.live:f"), Stage.RESOLVE),
        (("serve.dialects.v1.answer:_result", "serve.dialects.v1.answer:write"), Stage.ANSWER),
        (("json.decoder:decode", "serve.dialects.v1.schemas:f"), Stage.READ),
        ((), Stage.READ),
    ],
)
def test_innermost_frame_that_has_a_stage_decides(inner: tuple[str, ...], stage: Stage) -> None:
    assert stage_of((*inner, *_REQUEST)) is stage


def test_shares_are_of_the_running_event_loop_alone() -> None:
    around = ("asyncio.runners:run", "serve.http.standalone:serve_standalone")
    found = shares(
        {
            ("serve.access.gate:f", *_REQUEST, *around): 3,
            ("_weakrefset:add", *around): 1,
            ("serve.bundle.loader:load_bundle", "serve.launch:launch"): 100,
        }
    )
    assert {stage: share for stage, share in found.items() if share} == {
        Stage.CHECK: 0.75,
        Stage.LOOP: 0.25,
    }
