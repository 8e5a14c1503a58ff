from pathlib import Path

import pytest

from export.errors import ExportFailed
from export.staging import staged


def write(out: Path, text: str) -> None:
    with staged(out) as folder:
        (folder / "manifest.json").write_text(text)


def test_the_folder_appears_whole(tmp_path: Path) -> None:
    out = tmp_path / "new" / "bundle"
    with staged(out) as folder:
        (folder / "manifest.json").write_text("one")
        assert not out.exists()
    assert [path.name for path in out.parent.iterdir()] == ["bundle"]
    assert (out / "manifest.json").read_text() == "one"
    assert out.stat().st_mode & 0o055 == 0o055, "others may read it"


def test_a_bundle_is_replaced(tmp_path: Path) -> None:
    out = tmp_path / "bundle"
    write(out, "one")
    (out / "left over").touch()
    with staged(out) as folder:
        (folder / "manifest.json").write_text("two")
        assert (out / "manifest.json").read_text() == "one", "served until the new one is whole"
    assert [path.name for path in out.iterdir()] == ["manifest.json"]
    assert (out / "manifest.json").read_text() == "two"
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


@pytest.mark.parametrize("interruption", [RuntimeError, KeyboardInterrupt])
def test_a_failure_leaves_the_old_bundle_and_nothing_else(
    tmp_path: Path, interruption: type[BaseException]
) -> None:
    out = tmp_path / "bundle"
    write(out, "one")
    with pytest.raises(interruption), staged(out) as folder:
        (folder / "manifest.json").write_text("two")
        raise interruption
    assert (out / "manifest.json").read_text() == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_the_old_bundle_returns_if_the_new_one_cannot_take_its_place(tmp_path: Path) -> None:
    out = tmp_path / "bundle"
    write(out, "one")
    with pytest.raises(FileNotFoundError), staged(out) as folder:
        folder.rmdir()
    assert (out / "manifest.json").read_text() == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    write(tmp_path, "one")
    assert (tmp_path / "manifest.json").read_text() == "one"


def test_a_folder_that_is_no_bundle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ExportFailed, match="exists and is no bundle"), staged(tmp_path):
        pytest.fail("the block must not run")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "bundle"
    out.write_text("a file")
    with pytest.raises(ExportFailed, match="exists and is no bundle"), staged(out):
        pytest.fail("the block must not run")
    assert out.read_text() == "a file"


def test_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    out = tmp_path / "file" / "bundle"
    with pytest.raises(ExportFailed, match=r"cannot be written .*: choose another"), staged(out):
        pass
