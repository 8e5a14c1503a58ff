"""Folders that people take for a model's, and what to do with them instead."""

from pathlib import Path

from models.errors import UnusableCheckpoint
from models.model_files import CONFIG, read_json

ADAPTER = "adapter_config.json"
_ADAPTERS = (ADAPTER, "adapter_model.safetensors", "adapter_model.bin")
# Of an adapter's tasks, with the class of peft that merges it.
_TASKS = {"TOKEN_CLS": "TokenClassification", "SEQ_CLS": "SequenceClassification"}


def check_adapters(folder: Path) -> None:
    """Check that no adapter lies in a model's folder; without it the model answers otherwise.

    Raises:
        UnusableCheckpoint: there is one.
    """
    if not any((folder / name).exists() for name in _ADAPTERS):
        return
    stated = read_json(folder, ADAPTER)
    task = _TASKS.get(str(stated.get("task_type")), _TASKS["SEQ_CLS"])
    base = stated.get("base_model_name_or_path") or "the base model"
    raise UnusableCheckpoint(
        f"{folder} holds an adapter (such as LoRA) that is no part of the model's weights yet. "
        f"Merge the two with the package peft: AutoPeftModelFor{task}.from_pretrained("
        f"{str(folder)!r}, num_labels=N).merge_and_unload().save_pretrained('OUT'). Save the "
        f"tokenizer of {base} beside it, and give OUT"
    )


def instead(folder: Path) -> str:
    """Return, as the end of a refusal, which other folder to give, or nothing if none is known."""
    found = [path.parent for place in ("*", "*/*") for path in folder.glob(f"{place}/{CONFIG}")]
    if found:
        return f"; give the folder of one model, such as {max(found, key=_steps)}"
    if any(folder.glob("*.ckpt")):
        return (
            "; a .ckpt is a pickle, and none is run: load it with the code that wrote it, and save "
            "the transformers model inside it by save_pretrained"
        )
    return ""


def _steps(folder: Path) -> tuple[int, str]:
    """Order a run's checkpoints by their steps, so that checkpoint-1000 is after checkpoint-500."""
    digits = folder.name.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else -1, folder.name
