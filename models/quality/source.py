"""What can be recorded: a bundle as the server runs it, or a model in PyTorch."""

import hashlib
import shutil
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import TypeAlias

import numpy as np
import torch

from models.heads import HeadOutput
from models.multi_exit import MultiExitModel
from serve.bundle.loader import TOKENIZER, Bundle
from serve.engine.runner import Ids, StepOutput
from serve.engine.warm_up import steps
from serve.runtime.hardware import available_threads
from serve.runtime.placement import Placement, build_runner
from serve.tokenization.inputs import InputReader, pieces_of
from serve.tokenization.tokenizer import Text, TextEncoder, Tokens

# From ids, mask and types, each (rows, tokens), to what every exit gives, first to last.
Run: TypeAlias = Callable[[Ids, Ids, Ids], Iterator[StepOutput]]


class BundleSource:
    """One precision of a bundle, with the exits that it presents; tokens are as the server's.

    Attributes:
        traits: with the exits that are recorded.
        temperatures: one per exit.
        pad_id: fills rows up.
        max_tokens: longer texts are cut.
        tokenizer_path: a `tokenizer.json`.
        table: answers before the first layer; None if there is none.
        small: the small model in front; None if there is none.
        plain: whether special tokens in texts are read as characters.
    """

    def __init__(self, bundle: Bundle, placement: Placement, plain: bool = False) -> None:
        """Take a bundle; `plain` reads special tokens in texts as characters."""
        manifest = bundle.manifest
        self.bundle, self.placement, self.plain = bundle, placement, plain
        self.traits, self.pad_id = bundle.traits(placement.precision), manifest.pad_id
        self.temperatures = bundle.temperatures(placement.precision)
        self.max_tokens, self.tokenizer_path = manifest.max_tokens, bundle.tokenizer_path
        self.table = bundle.read_table()
        self.small = BundleSource(bundle.small, placement, plain) if bundle.small else None

    @property
    def sha256(self) -> str:
        """The hash of the variant's weights."""
        manifest = self.bundle.manifest
        return manifest.files[manifest.variants[self.placement.precision].weights]

    def read(self, texts: Sequence[Text]) -> list[Tokens]:
        """Return the texts' tokens.

        Raises:
            InvalidRequest: a text has no tokens, or is a pair that the model does not take.
        """
        return read_tokens(self.bundle, texts, self.plain)

    @contextmanager
    def running(self) -> Iterator[Run]:
        """Inside the block, hold the graphs in memory."""
        yield partial(steps, build_runner(self.bundle, self.placement, available_threads()))


def read_tokens(bundle: Bundle, texts: Sequence[Text], plain: bool = False) -> list[Tokens]:
    """Return texts' tokens as the server reads them; see `BundleSource.read`."""
    reader = InputReader(bundle.tokenizer_path, bundle.manifest)
    tokens: list[Tokens] = []
    for piece in pieces_of(texts):
        tokens += reader.read(piece, truncate=True, first=len(tokens), plain=plain)
    return tokens


class TorchSource:
    """A model on any device; its training mode is restored after a run.

    The tokenizer lies in a file for as long as the source is used. The attributes are those of
    `BundleSource`; there is nothing before the first layer.
    """

    table: None = None
    small: None = None
    plain = False

    def __init__(self, model: MultiExitModel, tokenizer: str, max_tokens: int) -> None:
        folder = mkdtemp()
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.tokenizer_path = Path(folder) / TOKENIZER
        self.tokenizer_path.write_text(tokenizer, "utf-8")
        self.model, self.traits = model, model.traits
        self.temperatures = (1.0,) * len(model.exits)
        self.pad_id = model.config.pad_token_id or 0
        self.max_tokens = max_tokens

    @property
    def sha256(self) -> str:
        """The hash of tokenizer and weights."""
        digest = hashlib.sha256(self.tokenizer_path.read_bytes())
        for name, value in self.model.state_dict().items():
            digest.update(name.encode())
            digest.update(value.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def read(self, texts: Sequence[Text]) -> list[Tokens]:
        """Return the texts' tokens; which of them count is for taggers."""
        encoder = TextEncoder(self.tokenizer_path, self.max_tokens)
        encodings = encoder.encodings(dict(enumerate(texts)), truncate=True).values()
        return [
            Tokens.of(each)._replace(counted=np.array(each.special_tokens_mask) == 0)
            for each in encodings
        ]

    @contextmanager
    def running(self) -> Iterator[Run]:
        """Inside the block, set the model to evaluation."""
        was_training = self.model.training
        self.model.eval()
        try:
            yield self._run
        finally:
            self.model.train(was_training)

    def _run(self, ids: Ids, mask: Ids, types: Ids) -> Iterator[StepOutput]:
        device = next(self.model.parameters()).device
        batch = (torch.from_numpy(each).to(device) for each in (ids, mask, types))
        with torch.inference_mode():
            return map(_as_step, self.model.exit_outputs(*batch))


Source: TypeAlias = BundleSource | TorchSource


def _as_step(output: HeadOutput) -> StepOutput:
    uncertainty = None if output.uncertainty is None else output.uncertainty.float().cpu().numpy()
    return StepOutput(None, output.logits.float().cpu().numpy(), uncertainty)
