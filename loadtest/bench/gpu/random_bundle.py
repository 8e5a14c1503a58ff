"""BERT-base with random weights as a bundle for GPUs, built where no bundle is named.

`python -m loadtest.bench.gpu.random_bundle FOLDER` builds it beforehand: that takes a minute or
two, which then do not count against the plan.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from loadtest.bench.errors import BenchFailed
from loadtest.bench.gpu.child import absent
from loadtest.bench.random_model import BERT_BASE, ModelSettings, build
from serve.bundle.loader import Bundle, load_bundle

# Heads as those of the shipped models: the mean's shares are uploaded too.
SETTINGS = replace(BERT_BASE, pooling="mean", pooler=True)
EXPORTER = ("torch", "transformers", "onnx", "onnx_ir", "onnxscript", "safetensors")


def random_bundle(folder: Path, settings: ModelSettings = SETTINGS) -> Bundle:
    """Return the bundle in a folder, built there if the folder does not exist.

    Raises:
        BenchFailed: a package of the exporter is missing, or the export failed.
    """
    if folder.exists():
        return load_bundle(folder)
    if missing := absent(*EXPORTER):
        raise BenchFailed(
            f"name a bundle: none can be built here without {missing}. Export one elsewhere with "
            "--precision fp32,fp16"
        )
    print(f"building {settings.name} with random weights in {folder}", flush=True)
    return build(settings, ("fp32", "fp16"), folder)


def main() -> None:
    """Build the bundle in the folder that is named."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.bench.gpu.random_bundle")
    parser.add_argument("folder", type=Path)
    print(random_bundle(parser.parse_args().folder).folder)


if __name__ == "__main__":
    main()
