"""The page on clusters shows a config that Ray and the server take, and names all variables."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from serve.cluster.deployment_options import DEPLOYMENT_NAME
from serve.cluster.node import ENVIRONMENT
from serve.config import ServerConfig, UserConfig
from tests.docs.test_pages import blocks

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"


@pytest.fixture
def documents() -> list[Any]:
    """The page's blocks of YAML."""
    return [yaml.safe_load(block) for block in blocks(PAGE, "yaml")]


# Ray defines its schemas as pydantic 1 did.
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::pydantic.PydanticDeprecatedSince20"
)
def test_config_is_one_that_ray_and_the_server_take(documents: list[Any]) -> None:
    from ray.serve.schema import DeploymentSchema, ServeDeploySchema

    config, pinned, other_models, autoscaling = documents
    [application] = ServeDeploySchema.model_validate(config).applications
    assert application.import_path == "serve.app:build"
    ServerConfig.model_validate(application.args)
    assert pinned["args"].keys() <= ServerConfig.model_fields.keys()
    [deployment] = config["applications"][0]["deployments"]
    assert deployment["name"] == DEPLOYMENT_NAME
    assert UserConfig.model_validate(deployment["user_config"]).policies
    assert UserConfig.model_validate(other_models["user_config"]).aliases
    del deployment["num_replicas"]
    assert DeploymentSchema.model_validate({**deployment, **autoscaling}).autoscaling_config


def test_every_variable_of_the_image_is_named() -> None:
    found = dict(re.findall(r"`([A-Z]\w+)=(\w*)`", PAGE.read_text("utf-8")))
    assert ENVIRONMENT.items() <= found.items()
