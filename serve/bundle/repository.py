"""The bundles that may be loaded while the server runs, by name."""

from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from serve.bundle.loader import MANIFEST, given_path
from serve.errors import Forbidden, UnknownBundle

# Folders of a repository that are looked at, in the order of the system.
_MOST_FOLDERS: Final = 1000


class Repository:
    """The bundles that the server was started with, and those of `--model-repository`.

    Clients name a bundle, and never a path.
    """

    def __init__(self, given: Iterable[str | Path], folder: Path | None = None) -> None:
        """Take the bundles of the start; `folder` is None where no others may be loaded."""
        folders = map(given_path, given)
        self._given = {each.name: each for each in folders}
        self._folder = folder

    def was_given(self, name: str) -> bool:
        """Tell whether the server was started with a bundle of this name."""
        return name in self._given

    def bundles(self) -> dict[str, Path]:
        """Return the folders that may be loaded, by name. May block."""
        found = {}
        if self._folder:
            with suppress(OSError):  # it is gone, or not for this process to read
                inside = self._folder.resolve()
                for path in islice(inside.iterdir(), _MOST_FOLDERS):
                    if _is_bundle(path, inside):
                        found[path.name] = path
        return dict(sorted(found.items())) | self._given

    def folder_of(self, name: str) -> Path:
        """Return the folder of a bundle. May block.

        Raises:
            Forbidden: there is no repository, and the server was not started with this bundle.
            UnknownBundle: the repository has none of this name.
        """
        bundles = self.bundles()
        if name in bundles:
            return bundles[name]
        there = ", ".join(islice(bundles, 50)) or "none"
        if self._folder is None:
            raise Forbidden(
                f"bundle: the server may load only those that it was started with: {there}; for "
                "others start it with --model-repository FOLDER (in a config, model_repository)"
            )
        raise UnknownBundle(f"no bundle {name[:128]!r} in the model repository; it has {there}")


def _is_bundle(path: Path, repository: Path) -> bool:
    """Tell whether a place in a repository is a bundle that can be named and read."""
    if path.name.startswith(".") or not path.name.isprintable():  # bytes of no text are not
        return False
    try:
        # A link may lead to another place inside, and to nothing outside.
        return path.resolve().is_relative_to(repository) and (path / MANIFEST).is_file()
    except (OSError, RuntimeError):  # such as lost+found of a volume; a link to itself
        return False
