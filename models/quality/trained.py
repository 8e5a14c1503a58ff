"""Which texts a model was trained on: hashes of their tokens, in a file beside its card."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from models.errors import UnusableData
from models.quality.card import TRAINING
from models.quality.data import LabelledText, TextFile, token_hashes
from serve.bundle.loader import Bundle
from serve.tokenization.tokenizer import TextEncoder, Tokens

TRAINED = "trained.npz"
# The card of the model in a bundle.
_CARD = "MODEL.md"
# The share of the certifying texts that the training may have seen.
_MOST_SEEN = 0.01


def write_trained(folder: Path, tokens: Iterable[Tokens], max_tokens: int) -> None:
    """Write the hashes of a training's texts, each once, with the length to which they were cut."""
    hashes = np.unique(np.array(token_hashes(tokens), np.uint64))
    np.savez(folder / TRAINED, hashes=hashes, max_tokens=max_tokens)


def check_unseen(
    bundle: Bundle, files: Sequence[TextFile], certifying: Sequence[LabelledText]
) -> str | None:
    """Return a note if the training has seen some of the texts that certify.

    Raises:
        UnusableData: a file is the training's own, or more than 1 % of the texts were seen.
    """
    for file in files:
        if file.data.sha256[:12] in _training_section(bundle):
            raise UnusableData(
                f"{file.path}: the model was trained on this very file, on which it is surer than "
                "on texts of your clients; certify on others"
            )
    if not (bundle.folder / TRAINED).is_file():
        return None
    with np.load(bundle.folder / TRAINED) as known:
        trained, max_tokens = known["hashes"], int(known["max_tokens"])
    texts = {place: each.text for place, each in enumerate(certifying)}
    encoded = TextEncoder(bundle.tokenizer_path, max_tokens).encodings(texts, truncate=True)
    hashes = np.unique(np.array(token_hashes(map(Tokens.of, encoded.values())), np.uint64))
    seen = int(np.isin(hashes, trained).sum())
    said = f"of {len(hashes)} different texts that certify {seen} were seen in the training"
    if seen > _MOST_SEEN * len(hashes):
        raise UnusableData(
            f"{said}, on which the model is surer than on texts of your clients: leave them out; "
            f"at most {100 * _MOST_SEEN:g} % are taken"
        )
    return said if seen else None


def _training_section(bundle: Bundle) -> str:
    """Return what the model's card says of its training."""
    card = bundle.folder / _CARD
    text = card.read_text("utf-8") if card.is_file() else ""
    return text.partition(TRAINING[0])[2].partition(TRAINING[1])[0]
