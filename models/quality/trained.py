"""Which texts a model was trained on: hashes of their tokens, in a file beside its card."""

import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models.errors import UnusableData
from models.quality.card import TRAINING, read_card
from models.quality.data import LabelledText, TextFile, token_hashes
from serve.bounded_file import UnfitFile, read_file
from serve.bundle.loader import Bundle
from serve.tokenization.tokenizer import Text, TextEncoder, Tokens

TRAINED = "trained.npz"
# The card of the model in a bundle.
_CARD = "MODEL.md"
# The share of the certifying texts that the training may have seen.
_MOST_SEEN = 0.01
# 30 million texts.
_MOST_BYTES = 256 << 20


def write_trained(folder: Path, tokens: Iterable[Tokens], max_tokens: int) -> None:
    """Write the hashes of a training's texts, each once, with the length to which they were cut."""
    hashes = np.unique(np.array(token_hashes(tokens), np.uint64))
    np.savez(folder / TRAINED, hashes=hashes, max_tokens=max_tokens)


def with_trained(bundle: Bundle, texts: Sequence[Text]) -> bytes:
    """Return the bundle's file of hashes with further texts in it."""
    path, known, max_tokens = bundle.folder / TRAINED, np.zeros(0, np.uint64), None
    if path.is_file():
        known, max_tokens = _read_trained(path)
    max_tokens = max_tokens or bundle.manifest.max_tokens
    hashes = np.union1d(known, _hashes(bundle, texts, max_tokens))
    file = io.BytesIO()
    np.savez(file, hashes=hashes, max_tokens=max_tokens)
    return file.getvalue()


def check_unseen(
    bundle: Bundle, files: Sequence[TextFile], certifying: Sequence[LabelledText]
) -> str | None:
    """Return a note if the training has seen some of the texts that certify, or was judged by them.

    Raises:
        UnusableData: a file is the training's own, or more than 1 % of the texts were seen.
    """
    for file in files:
        if file.data.sha256[:12] in _training_section(bundle):
            raise UnusableData(
                f"{file.path}: the model was trained on this very file, on which it is surer than "
                "on texts of your clients; certify on others"
            )
    measured = {each.data.sha256 for each in bundle.calibration.variants.values()}
    chose = [str(file.path) for file in files if file.data.sha256 in measured]
    note = f"{', '.join(chose)} measured the model in training, and may have chosen its weights"
    said = _check_texts(bundle, certifying)
    return "; ".join([*([note] if chose else []), *([said] if said else [])]) or None


def _check_texts(bundle: Bundle, certifying: Sequence[LabelledText]) -> str | None:
    """Return how many texts were seen in training, or raise; None if none was."""
    if not (bundle.folder / TRAINED).is_file():
        return None
    trained, max_tokens = _read_trained(bundle.folder / TRAINED)
    hashes = _hashes(bundle, [each.text for each in certifying], max_tokens)
    seen = int(np.isin(hashes, trained).sum())
    said = f"of {len(hashes)} different texts that certify {seen} were seen in the training"
    if seen > _MOST_SEEN * len(hashes):
        raise UnusableData(
            f"{said}, on which the model is surer than on texts of your clients: leave them out; "
            f"at most {100 * _MOST_SEEN:g} % are taken"
        )
    return said if seen else None


def _hashes(bundle: Bundle, texts: Sequence[Text], max_tokens: int) -> NDArray[np.uint64]:
    """Return the hashes of texts that are cut to so many tokens, each once."""
    encoder = TextEncoder(bundle.tokenizer_path, max_tokens)
    encoded = encoder.encodings(dict(enumerate(texts)), truncate=True).values()
    return np.unique(np.array(token_hashes(map(Tokens.of, encoded)), np.uint64))


def _read_trained(path: Path) -> tuple[NDArray[np.uint64], int]:
    """Return hashes and length, of a file that may be anybody's."""
    try:
        with np.load(io.BytesIO(read_file(path, _MOST_BYTES))) as known:
            if sum(each.file_size for each in known.zip.infolist()) > _MOST_BYTES:
                raise UnfitFile(f"holds more than {_MOST_BYTES} bytes")
            return known["hashes"].astype(np.uint64), int(known["max_tokens"])
    except Exception as error:  # damaged files raise various errors
        raise UnusableData(f"{path} cannot be read: {error}; export the model again") from None


def _training_section(bundle: Bundle) -> str:
    """Return what the model's card says of its training."""
    card = bundle.folder / _CARD
    text = read_card(card) if card.is_file() else ""
    return text.partition(TRAINING[0])[2].partition(TRAINING[1])[0]
