"""Whether a checkpoint, as it is served, says what transformers' own classes say."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch
import transformers
from transformers import PreTrainedTokenizerBase

from models.checkpoints.compared_texts import texts, texts_with
from models.checkpoints.differences import Row, differing_ids, logit_gap
from models.checkpoints.formats import LoadedCheckpoint
from models.checkpoints.original import Logits, OriginalFails, OriginalModel, open_original
from models.checkpoints.tokenizer_files import check_around
from models.errors import UnusableCheckpoint
from serve.bundle.loader import TOKENIZER
from serve.tokenization.tokenizer import TextEncoder

# Largest difference of a logit, as a share of it where it is larger than 1.
TOLERANCE = 1e-4
# Of longer texts only the ids are compared, and of texts with added tokens the logits of so many.
_MOST_TOKENS, _WITH_ADDED = 512, 4


class Served(NamedTuple):
    """A checkpoint as it is served.

    Attributes:
        tokenizer: tokenizes as the server does.
        logits: of the last exit, for ids and token types of one text, each (1, tokens).
    """

    tokenizer: TextEncoder
    logits: Logits


def served_by(loaded: LoadedCheckpoint) -> Served:
    """Return what a bundle of the checkpoint will serve in fp32, before there is one."""
    with TemporaryDirectory() as place:
        path = Path(place) / TOKENIZER
        path.write_text(loaded.tokenizer, "utf-8")
        encoder = TextEncoder(path, loaded.max_tokens)
    return Served(encoder, lambda ids, types: loaded.model(ids, torch.ones_like(ids), types)[-1])


def compare(folder: Path, loaded: LoadedCheckpoint, served: Served) -> str:
    """Compare ids and full-depth logits with those of transformers on sample texts.

    Returns:
        What was compared, or why it could not be, in one line.

    Raises:
        UnusableCheckpoint: something differs; the message shows the first difference.
    """
    original = open_original(folder, loaded)
    missing = list(original.missing)
    added = _added_tokens(served.tokenizer, original.tokenizer, loaded.model.config.vocab_size)
    samples = texts(served.tokenizer.max_tokens, pairs=loaded.info.exits.task != "token")
    rows = [Row.of(text, served.tokenizer) for text in (*samples, *texts_with(added))]
    said = []
    if original.tokenizer is not None:
        found = _first_difference(rows, original.tokenizer, loaded.model.backbone.has_token_types)
        if found is None:
            name = type(original.tokenizer).__name__
            said.append(f"the ids of {name} in {len(rows)} texts with {len(added)} added tokens")
        elif loaded.info.format == "Offramp":
            missing.append(f"the tokenizer is the one of the training; {found}")
        else:
            raise UnusableCheckpoint(f"{folder}: the tokenizer differs from transformers: {found}")
    if original.model is not None:
        check_around(loaded.tokenizer, loaded.model.backbone.unplaced_id, folder)
        computed = [row for row in rows[: len(samples) + _WITH_ADDED] if _is_computed(row, loaded)]
        try:
            gap = _largest_gap(folder, computed, served.logits, original.model)
            said.append(f"logits of {original.model.name} to {gap:.1g} in {len(computed)} texts")
        except OriginalFails as error:
            missing.append(str(error))
    return _sentence(said, missing)


def _first_difference(
    rows: list[Row], original: PreTrainedTokenizerBase, types_too: bool
) -> str | None:
    found = (differing_ids(row, original, types_too) for row in rows)
    return next(filter(None, found), None)


def _largest_gap(folder: Path, rows: list[Row], served: Logits, original: OriginalModel) -> float:
    """Return how far apart logits are at most.

    Raises:
        OriginalFails: transformers cannot compute a text.
        UnusableCheckpoint: a logit is further off than is allowed.
    """
    if not rows:
        raise OriginalFails("in every sample text are tokens that the model takes for padding")
    largest = 0.0
    for row in rows:
        wanted = original(*row.inputs)[0]
        if not wanted.isfinite().all():
            place = logit_gap(wanted, wanted, original.labels).place
            raise UnusableCheckpoint(
                f"{folder}: in {row}, {place} is no number by {original.name} itself: its "
                "weights hold NaN or too large numbers, as after a training that diverged"
            )
        with torch.no_grad():
            found = logit_gap(served(*row.inputs)[0], wanted, original.labels)
        largest = max(largest, found.size)
        if found.size > TOLERANCE:
            raise UnusableCheckpoint(
                f"{folder}: the model differs from transformers: in {row}, {found.place} is "
                f"{found.theirs:.6g} by {original.name}, and {found.ours:.6g} as it would be "
                "served; a setting of config.json may ask for another computation"
            )
    return largest


def _is_computed(row: Row, loaded: LoadedCheckpoint) -> bool:
    """Return whether the logits of a text are compared.

    RoBERTa's and MPNet's positions skip the padding token where a text has it, which is not done
    here: no text of a client has it.
    """
    ids = row.tokens.input_ids.tolist()
    return len(ids) <= _MOST_TOKENS and loaded.model.backbone.unplaced_id not in ids


def _added_tokens(
    served: TextEncoder, original: PreTrainedTokenizerBase | None, vocab_size: int
) -> list[str]:
    """Return the tokens that either tokenizer takes out of a text before it reads words.

    transformers adds special tokens of its own to a small vocabulary, which have no embeddings.
    """
    both = served.tokenizer.get_added_tokens_decoder()
    if original is not None:
        both |= {i: token for i, token in original.added_tokens_decoder.items() if i < vocab_size}
    return list(dict.fromkeys(token.content for token in both.values()))


def _sentence(said: list[str], missing: list[str]) -> str:
    version, reasons = f"transformers {transformers.__version__}", "; ".join(missing)
    if not said:
        return f"not compared with {version}: {reasons}"
    partly = f". Not compared: {reasons}" if missing else ""
    return f"compared with {version}: {' and '.join(said)}{partly}"
