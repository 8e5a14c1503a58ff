import numpy as np

from serve.audits.record import AuditLog, AuditRecord, RowLogits
from serve.audits.tally import Compared


def record(number: int, num_floats: int = 0) -> AuditRecord:
    rows = (RowLogits(np.zeros((1, num_floats), np.float32)),)
    compared = Compared(False)
    return AuditRecord(number, 1, "default", "", None, None, 0, True, False, 8, compared, rows)


def numbers(log: AuditLog) -> list[float]:
    return [each.time_s for each in log.records()]


def test_the_newest_records_are_kept() -> None:
    log = AuditLog(max_records=3)
    for number in range(5):
        log.add(record(number))
    assert numbers(log) == [2, 3, 4]
    assert len(log) == 3


def test_large_records_drop_as_many_old_ones_as_they_need() -> None:
    log = AuditLog(max_bytes=30_000)
    for number in range(4):
        log.add(record(number))
    log.add(record(4, 4000))
    assert numbers(log) == [1, 2, 3, 4]
    log.add(record(5, 4000))
    assert numbers(log) == [5]
    log.add(record(6, 8000))
    assert numbers(log) == []
    log.add(record(7))
    assert numbers(log) == [7]
