"""What a bundle keeps of the texts that certify it: rules tried on it give the ladder's figures."""

import numpy as np
import pytest

from models.certification import stored
from serve.bundle.loader import load_bundle
from serve.bundle.recording import CERTIFYING
from serve.rules.traits import Task
from tests.models.certification.conftest import MakeBundle, MakeData
from tests.models.certification.test_calibrate import run
from tests.serve.support.task_bundles import LABELS


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("task", LABELS)
def test_rungs_tried_on_it_let_as_many_texts_leave_at_each_exit(
    make_bundle: MakeBundle, make_data: MakeData, task: Task, learned: bool
) -> None:
    folder = make_bundle(task, learned=learned)
    run(folder, make_data(task))
    bundle = load_bundle(folder)
    ladder, recording = bundle.ladder("fp32"), bundle.certifying("fp32")
    assert ladder is not None
    assert recording is not None
    for rung in ladder.rungs:
        exits = recording.taken(rung.rule).exits
        assert len(exits) == ladder.num_certifying
        shares = np.bincount(exits, minlength=len(ladder.exits)) / len(exits)
        assert tuple(shares) == rung.exit_shares


def test_one_that_would_be_large_is_not_kept(
    make_bundle: MakeBundle, make_data: MakeData, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, data = make_bundle(), make_data(num_texts=60)
    run(folder, data)
    assert load_bundle(folder).certifying("fp32") is not None
    monkeypatch.setattr(stored, "MOST_CERTIFYING_BYTES", 1000)
    run(folder, data)
    bundle = load_bundle(folder)
    assert bundle.certifying("fp32") is None
    assert not any(name.startswith(CERTIFYING) for name in bundle.manifest.files)
