"""A bundle stays as it was where a command that changes it in steps does not come to its end."""

import shutil
from collections.abc import Iterator, Sized
from contextlib import contextmanager
from pathlib import Path

from models.quality.stored import repair, replace_files
from serve.bundle.loader import MANIFEST, load_bundle
from serve.bundle.manifest import Manifest
from serve.rules.small import FOLDER


@contextmanager
def undone_without(certified: Sized, folder: Path) -> Iterator[None]:
    """Put a bundle's files back if the block raises before anything is certified.

    Either way small models go that are not in front of the bundle's any more.

    Args:
        certified: empty until something is.
        folder: the bundle's.
    """
    repair(folder)
    files = load_bundle(folder).manifest.files
    # What a calibration writes lies at the top, beside the folders of weights.
    names = [name for name in (MANIFEST, *files) if "/" not in name]
    before = {name: (folder / name).read_bytes() for name in names}
    try:
        yield
    except BaseException:
        if not certified:
            replace_files(folder, before)
        raise
    finally:
        small = Manifest.model_validate_json((folder / MANIFEST).read_bytes()).small
        for each in folder.glob(FOLDER.format("*")):
            if small is None or each.name != small.folder:
                shutil.rmtree(each, ignore_errors=True)
