"""`offramp calibrate --table`: a bundle of any origin gets a table, taught by its own answers."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from models.data.columns import KNOWN, Columns
from models.data.unlabelled import read_unlabelled
from models.errors import TrainingFailed
from models.quality.source import BundleSource
from models.quality.stored import repair, store_before
from models.quality.trained import TRAINED, with_trained
from models.staging import check_writable
from models.table.files import TABLE, facts_of, rows_of
from models.table.teach import teach
from serve.bundle.loader import load_bundle
from serve.runtime.placement import place
from serve.tokenization.inputs import InputReader


def add_table(
    folder: Path, data: Sequence[Path], console: Console, columns: Columns = KNOWN
) -> None:
    """Teach a table and write it into a bundle, in the place of an older one.

    Args:
        folder: the bundle's.
        data: texts that will not certify; their labels are not read.
        console: for progress.
        columns: of the files, those that the user names.

    Raises:
        OfframpError: a bundle or texts that cannot be used; nothing was written.
    """
    repair(folder)
    bundle = load_bundle(folder)
    check_writable(folder, TrainingFailed)
    source = BundleSource(bundle, place(bundle, "auto", "auto"))
    texts = [text for path in data for text in read_unlabelled(path, columns)]
    vocab_size = InputReader(bundle.tokenizer_path, bundle.manifest).vocab_size
    learned = teach(source, source.read(texts), vocab_size, console)
    contents = {TABLE: rows_of(learned), TRAINED: with_trained(bundle, texts)}
    lost = [each for each in bundle.calibration.ladders if each.table]
    store_before(bundle, {"table": facts_of(learned)}, contents)
    if lost:
        console.print("note: what was certified with the older table is gone", highlight=False)
