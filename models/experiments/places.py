"""Where experiments find data, encoders and bundles, and where they write."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Places:
    """Folders.

    Attributes:
        data: holds `sst2/train.tsv`, `sst2/dev.tsv` and so on.
        zoo: holds the encoders and the splits that `make zoo` makes.
        bundles: exported models.
        runs: the trained models of the experiments, and what has been measured of them.
        page: the page that is written; its pictures lie in `images/<name of the page>` beside it.
    """

    data: Path = Path("../shared/data")
    zoo: Path = Path("build/zoo")
    bundles: Path = Path("bundles")
    runs: Path = Path("build/experiments")
    page: Path = Path("docs/reproductions.md")

    @property
    def pictures(self) -> Path:
        """The folder of the page's pictures."""
        return self.page.parent / "images" / self.page.stem
