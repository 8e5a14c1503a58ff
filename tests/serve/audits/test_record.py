import numpy as np
import pytest

from serve.audits.record import AuditLog, AuditRecord, RowLogits


@pytest.mark.parametrize(
    ("added", "kept"),
    [
        ([0, 0, 0, 0], [1, 2, 3]),
        ([0, 0, 4000], [1, 2]),
        ([0, 0, 4000, 4000], [3]),
        ([0, 8000], []),
        ([8000, 0], [1]),
    ],
)
def test_the_newest_records_are_kept_within_number_and_bytes(
    added: list[int], kept: list[int]
) -> None:
    log = AuditLog(max_records=3, max_bytes=18_500)
    for place, num_floats in enumerate(added):
        rows = (RowLogits(np.zeros((1, num_floats), np.float32)),)
        log.add(AuditRecord(str(place), rows))
    assert [record.profile for record in log.records()] == list(map(str, kept))
