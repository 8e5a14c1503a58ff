import pytest

from serve.audits.counts import AuditKey, Bound, Promise, Tally
from serve.audits.quality import ProfileQuality, profile_quality
from serve.policy.ladder import Loss


def promised(*bounds: tuple[Loss, float]) -> AuditKey:
    made = tuple(Bound(loss=loss, epsilon=epsilon, delta=0.05) for loss, epsilon in bounds)
    return AuditKey("fast", Promise(bounds=made, rule='{"rule":"never"}', since=1))


FAST = promised(("disagreement", 0.01))


def quality(key: AuditKey, **counts: object) -> ProfileQuality:
    return profile_quality(key, Tally(since="2026-01-31T12:00:00Z", **counts), 0.01, {})


@pytest.mark.parametrize(
    ("audited", "differ", "state"),
    [
        (0, 0, "watching"),
        (200, 2, "watching"),
        (2_000, 4, "kept"),
        (2_000, 20, "watching"),
        (200, 12, "broken"),
        (2_000, 60, "broken"),
    ],
)
def test_state_of_a_promise(audited: int, differ: int, state: str) -> None:
    found = quality(FAST, audited=audited, differ=differ)
    assert found.state == found.promises[0].state == state
    low, high = found.interval
    assert low <= (differ / audited if audited else 0.5) <= high


def test_before_the_first_audit_nothing_is_known() -> None:
    found = profile_quality(FAST, None, 0.01, {})
    assert (found.state, found.since, found.disagreement) == ("watching", None, None)
    assert found.interval == (0, 1)


def test_worst_of_the_promises_counts() -> None:
    key = promised(("missed", 0.01), ("false_alarms", 0.02))
    found = quality(key, audited=5_000, flagged=1_000, missed=60, false_alarms=10)
    assert [(each.lost, each.texts) for each in found.promises] == [(60, 1_000), (10, 4_000)]
    assert [each.state for each in found.promises] == ["broken", "kept"]
    assert found.state == "broken"


def test_what_audits_cannot_tell_is_said() -> None:
    found = quality(promised(("metric", 0.005)), audited=5_000, differ=400)
    assert found.state == "not audited"
    assert found.promises[0].evidence_log10 is None
    assert quality(AuditKey("fast"), audited=5_000, differ=400).state == "no promise"


def test_exits_are_held_against_those_of_the_certifying_texts() -> None:
    tally = Tally(since="", audited=100, differ=6, by_exit={1: (50, 5), 3: (30, 1), 4: (20, 0)})
    found = profile_quality(FAST, tally, 0.01, {1: 0.3, 2: 0.1, 3: 0.3, 4: 0.3})
    assert [(layer, each.share, each.differences) for layer, each in found.exits.items()] == [
        (1, 0.5, 5),
        (2, 0.0, 0),
        (3, 0.3, 1),
        (4, 0.2, 0),
    ]
    assert found.drift == pytest.approx(0.2)
