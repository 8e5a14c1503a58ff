from pathlib import Path

import pytest

from serve.cluster.log_socket import LogSocket, collecting
from serve.errors import Unavailable
from serve.log_output import Output


def test_lines_of_replicas_arrive_whole_however_they_are_cut(tmp_path: Path) -> None:
    written: list[bytes] = []
    path = tmp_path / "lines"
    with collecting(path, Output(written.append, "json")):
        one, other = LogSocket(path), LogSocket(path)
        for part in (b"a" * 100_000, b"a\nb", b"b\n"):
            one.write(part)
            other.write(b"whole\n")
        one.write(b"killed within a li")
        one.close()
        other.close()
    lines = b"".join(written).splitlines()
    assert sorted(lines) == [b"a" * 100_001, b"bb", b"killed within a li", *[b"whole"] * 3]
    assert all(batch.endswith(b"\n") for batch in written)


def test_replica_whose_command_does_not_listen_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    replica = LogSocket(path)
    with pytest.raises(FileNotFoundError):
        replica.write(b"lost\n")
    written: list[bytes] = []
    with collecting(path, Output(written.append, "json")):
        replica.write(b"kept\n")
        replica.close()
    assert written == [b"kept\n"]


def test_folder_whose_path_is_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(Unavailable, match="no socket for log lines"),
        collecting(tmp_path / ("x" * 120), Output(print, "json")),
    ):
        pass
