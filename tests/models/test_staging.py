from pathlib import Path

import pytest

from export.bundle_folder import BUNDLE
from export.errors import ExportFailed
from models.staging import check_replaceable, staged


def write(out: Path, text: str) -> None:
    with staged(out, BUNDLE) as folder:
        (folder / "manifest.json").write_text(text)


def test_the_folder_appears_whole(tmp_path: Path) -> None:
    out = tmp_path / "new" / "bundle"
    with staged(out, BUNDLE) as folder:
        (folder / "manifest.json").write_text("one")
        assert not out.exists()
    assert [path.name for path in out.parent.iterdir()] == ["bundle"]
    assert (out / "manifest.json").read_text() == "one"
    assert out.stat().st_mode & 0o055 == 0o055, "others may read it"


def test_a_bundle_is_replaced(tmp_path: Path) -> None:
    out = tmp_path / "bundle"
    write(out, "one")
    (out / "left over").touch()
    with staged(out, BUNDLE) as folder:
        (folder / "manifest.json").write_text("two")
        assert (out / "manifest.json").read_text() == "one", "served until the new one is whole"
    assert [path.name for path in out.iterdir()] == ["manifest.json"]
    assert (out / "manifest.json").read_text() == "two"
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_the_old_bundle_returns_if_the_new_one_cannot_take_its_place(tmp_path: Path) -> None:
    out = tmp_path / "bundle"
    write(out, "one")
    with pytest.raises(FileNotFoundError), staged(out, BUNDLE) as folder:
        folder.rmdir()
    assert (out / "manifest.json").read_text() == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    write(tmp_path, "one")
    assert (tmp_path / "manifest.json").read_text() == "one"


@pytest.mark.parametrize(
    ("file", "out", "message"),
    [
        ("bundle/thesis.tex", "bundle", "exists and is no bundle"),
        ("bundle", "bundle", "exists and is no bundle"),
        ("file", "file/bundle", r"cannot be written .*: choose another"),
    ],
)
def test_a_place_that_is_no_bundle_is_refused_and_unchanged(
    tmp_path: Path, file: str, out: str, message: str
) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text("years of work")
    with pytest.raises(ExportFailed, match=message), staged(tmp_path / out, BUNDLE):
        pytest.fail("the block must not run")
    assert path.read_text() == "years of work"


def test_a_place_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for out in (tmp_path / "file" / "bundle", Path("/proc/new/bundle")):
        with pytest.raises(ExportFailed, match="cannot be written"):
            check_replaceable(out, BUNDLE)
