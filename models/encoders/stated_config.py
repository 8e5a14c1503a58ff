"""Reading a `config.json` that may have come from anywhere, before a model is made from it."""

from pathlib import Path
from typing import Any

from models.encoders.config_sizes import check_sizes
from models.encoders.other_computations import check_computation
from models.errors import UnusableCheckpoint
from models.model_files import CONFIG, check_files, read_json
from models.wrong_folders import check_adapters, instead


def stated_config(folder: Path) -> dict[str, Any]:
    """Return the content of a folder's `config.json`, after the folder's files were checked.

    Raises:
        UnusableCheckpoint: a file lies elsewhere or is too large, the folder is no model's, or the
            config asks for what no model here can be or compute.
    """
    check_files(folder)
    check_adapters(folder)
    path = folder / CONFIG
    if not path.is_file():
        raise UnusableCheckpoint(f"{folder} holds no model: {CONFIG} is missing{instead(folder)}")
    config = read_json(folder, CONFIG)
    check_sizes(config, path)
    check_computation(config, path)
    return config
