"""BERT-base with random weights as a bundle for GPUs, built where no bundle is named.

`python -m loadtest.bench.gpu.random_bundle FOLDER` builds it beforehand: that takes a minute or
two, which then do not count against the plan.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from loadtest.bench.engine.settings import BERT_BASE, ModelSettings
from loadtest.bench.errors import BenchFailed
from loadtest.bench.gpu.child import absent
from serve.bundle.loader import Bundle, load_bundle

# Heads as those of the shipped models: the mean's shares are uploaded too.
SETTINGS = replace(BERT_BASE, pooling="mean", pooler=True)
EXPORTER = ("torch", "transformers", "onnx", "onnx_ir", "onnxscript", "safetensors")
# In a process of its own, so that PyTorch's memory and threads are not in the one that measures.
# `offramp export` would need typer and rich.
_BUILD = """
import json, os, sys
from pathlib import Path
from export.bundle import plan, write
from loadtest.bench.engine import random_model
from loadtest.bench.engine.settings import ModelSettings
settings, model, bundle = json.loads(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
random_model.write(ModelSettings(**settings), model)
write(plan(model, ("fp32", "fp16")), bundle)
os._exit(0)  # the libraries have been seen to crash while Python ends
"""


def random_bundle(folder: Path, settings: ModelSettings = SETTINGS) -> Bundle:
    """Return the bundle in a folder, built there if the folder does not exist.

    Raises:
        BenchFailed: a package of the exporter is missing, or the export failed.
    """
    if not folder.exists():
        _build(folder, settings)
    return load_bundle(folder)


def _build(folder: Path, settings: ModelSettings) -> None:
    if missing := absent(*EXPORTER):
        raise BenchFailed(
            f"name a bundle: none can be built here without {missing}. Export one elsewhere with "
            "--precision fp32,fp16"
        )
    print(f"building {settings.name} with random weights in {folder}", flush=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as model:
        command = [sys.executable, "-c", _BUILD, json.dumps(asdict(settings)), model, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip()[-2000:] or f"its process ended with {done.returncode}"
        raise BenchFailed(f"the model cannot be made:\n{said}")


def main() -> None:
    """Build the bundle in the folder that is named."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.bench.gpu.random_bundle")
    parser.add_argument("folder", type=Path)
    print(random_bundle(parser.parse_args().folder).folder)


if __name__ == "__main__":
    main()
