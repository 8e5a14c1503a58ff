"""A model teaches its table: it answers texts at full depth, and the table learns the answers."""

from collections.abc import Sequence

from rich.console import Console

from models.errors import TrainingFailed
from models.progress import progress
from models.quality.recorded import full_depth
from models.quality.source import Source
from models.table.learn import HELD_OUT, Learned, drawn, learn, num_buckets
from serve.rules.traits import Task
from serve.tokenization.tokenizer import Tokens

TASKS: tuple[Task, ...] = ("single_label", "multi_label")
# Of a file; a vocabulary with very many labels takes more.
MOST_FILE_BYTES = 16 << 20


def teach(
    source: Source, tokens: Sequence[Tokens], vocab_size: int, console: Console, seed: int = 42
) -> Learned:
    """Return the table that a model teaches by its answers to texts.

    Args:
        source: the model.
        tokens: of the texts.
        vocab_size: token ids are below it.
        console: for progress.
        seed: of the texts that are drawn, and of their order.

    Raises:
        TrainingFailed: the model can have no table, or the texts are too few.
    """
    if problem := why_none(source, vocab_size):
        raise TrainingFailed(problem)
    chosen = [tokens[place] for place in drawn(tokens, seed)]
    if len(chosen) < HELD_OUT:
        raise TrainingFailed(f"{len(chosen)} texts are too few to teach a table")
    with progress(console, "teaching the table", len(chosen)) as advance:
        logits = full_depth(source, chosen, advance)
    learned = learn(chosen, logits, source.traits, vocab_size, seed)
    console.print(
        f"table: {learned.rows.nbytes / 1e6:.1f} MB, taught by {len(chosen)} texts; before the "
        f"first layer it gives full depth's answer to {100 * learned.agreement:.1f} % of others",
        highlight=False,
        soft_wrap=True,
    )
    return learned


def why_none(source: Source, vocab_size: int) -> str | None:
    """Return why a model can have no table; None if it can."""
    task, num_labels = source.traits.task, len(source.traits.labels)
    if task not in TASKS:
        return f"a model of task {task} has no table: it is for one label or several"
    num_bytes = 2 * num_labels * (vocab_size + num_buckets(vocab_size, num_labels))
    if num_bytes > MOST_FILE_BYTES:
        return (
            f"a table of {num_labels} labels for {vocab_size} tokens would take "
            f"{num_bytes / 1e6:.0f} MB; at most {MOST_FILE_BYTES / 1e6:.0f} are made"
        )
    return None
