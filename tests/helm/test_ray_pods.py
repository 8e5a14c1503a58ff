"""The pods as Ray and KubeRay need them."""

import warnings
from importlib.util import find_spec
from pathlib import Path

from tests.helm.chart import Object, Rendered, render
from tests.helm.matrix import GPU, RAYSERVICE

INJECTED = ("startupProbe", "readinessProbe", "livenessProbe", "command", "args")


def container(release: Rendered, name: str) -> Object:
    found: Object = release.pods()[name]["spec"]["containers"][0]
    return found


def environment(release: Rendered, name: str) -> dict[str, str]:
    return {v["name"]: v.get("value", "") for v in container(release, name)["env"]}


def test_kuberays_command_and_probes_are_left_alone() -> None:
    # A readiness probe of the chart would replace the one that asks the proxy.
    release = render()
    for name in ("ray-head", "ray-worker"):
        assert not set(INJECTED) & set(container(release, name))


def test_head_runs_no_replica_and_gets_no_requests() -> None:
    release = render()
    assert release.cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    [deployment] = release.serve_config["applications"][0]["deployments"]
    assert deployment["ray_actor_options"]["num_cpus"] > 0
    assert release.the("RayService")["spec"]["excludeHeadPodFromServeSvc"] is True


def test_start_parameters_are_strings_that_ray_knows() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Ray's own imports
        from ray.scripts.scripts import start
    known = {option for parameter in start.params for option in parameter.opts}
    for values in ({}, GPU, RAYSERVICE["head settings"]):
        cluster = render(values).cluster
        for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
            assert {f"--{name}" for name in group["rayStartParams"]} <= known
            assert all(isinstance(value, str) for value in group["rayStartParams"].values())


def test_ray_serve_knows_every_flag() -> None:
    [folder] = find_spec("ray").submodule_search_locations
    source = (Path(folder) / "serve" / "_private" / "constants.py").read_text()
    flags = [name for name in environment(render(), "ray-head") if name.startswith("RAY_SERVE_")]
    assert flags
    for name in flags:
        assert f'"{name}"' in source, name


def test_haproxy_and_the_flags_for_throughput_come_together() -> None:
    # The latter alone makes every worker unready.
    for values, proxy in (({}, True), (RAYSERVICE["python proxy"], False)):
        release = render(values)
        for name in ("ray-head", "ray-worker"):
            flags = environment(release, name)
            assert (flags.get("RAY_SERVE_ENABLE_HA_PROXY") == "1") is proxy
            assert (flags.get("RAY_SERVE_THROUGHPUT_OPTIMIZED") == "1") is proxy
            assert flags["RAY_SERVE_LOG_TO_STDERR"] == "1"
            assert flags["RAY_worker_niceness"] == "0"


def test_cluster_is_steered_with_a_token_unless_told_otherwise() -> None:
    assert render().cluster["authOptions"] == {"mode": "token"}
    own = render(RAYSERVICE["own token"]).cluster["authOptions"]
    assert own == {"mode": "token", "secretName": "ray-token"}
    assert "authOptions" not in render(RAYSERVICE["no token"]).cluster


def test_state_outlives_the_head_where_asked() -> None:
    assert "gcsFaultToleranceOptions" not in render().cluster
    redis = render(RAYSERVICE["redis"]).cluster["gcsFaultToleranceOptions"]
    assert redis["redisAddress"] == "redis.db:6380"
    assert redis["redisPassword"]["valueFrom"]["secretKeyRef"]["name"] == "redis"
    volume = render(RAYSERVICE["rocksdb"]).cluster["gcsFaultToleranceOptions"]
    assert volume == {"backend": "rocksdb", "storage": {"size": "1Gi", "storageClassName": "ssd"}}


def test_gpu_workers_have_the_devices_that_replicas_ask_for() -> None:
    release = render(GPU)
    [group] = release.cluster["workerGroupSpecs"]
    assert (group["groupName"], group["rayStartParams"]["num-gpus"]) == ("gpu", "1")
    assert container(release, "ray-worker")["resources"]["limits"]["nvidia.com/gpu"] == 1
    [application] = release.serve_config["applications"]
    assert application["args"]["device"] == "cuda"
    assert application["args"]["gpu_memory_gb"] == 8
    assert application["deployments"][0]["ray_actor_options"]["num_gpus"] == 1
    tolerations = release.pods()["ray-worker"]["spec"]["tolerations"]
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in tolerations
    head = release.pods()["ray-head"]["spec"]
    assert "tolerations" not in head
    assert "nvidia.com/gpu" not in head["containers"][0]["resources"]["limits"]


def test_cpu_replicas_say_that_they_want_no_gpu() -> None:
    # Ray no longer hides GPUs from actors that ask for none.
    [application] = render().serve_config["applications"]
    assert application["args"]["device"] == "cpu"
    assert "num_gpus" not in application["deployments"][0]["ray_actor_options"]


def test_worker_leaves_the_cluster_before_it_ends() -> None:
    spec = render().pods()["ray-worker"]["spec"]
    *_, script = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert script.index("ray drain-node") < script.index("sleep 50") < script.index("ray stop")
    assert spec["terminationGracePeriodSeconds"] > 50


def test_autoscaler_can_write_where_it_must() -> None:
    release = render(RAYSERVICE["autoscaling"])
    options = release.cluster["autoscalerOptions"]
    assert options["securityContext"]["readOnlyRootFilesystem"] is True
    assert [m["mountPath"] for m in options["volumeMounts"]] == ["/tmp"]
    volumes = [v["name"] for v in release.pods()["ray-head"]["spec"]["volumes"]]
    assert options["volumeMounts"][0]["name"] in volumes


def test_names_leave_room_for_what_kuberay_appends() -> None:
    release = render({"fullnameOverride": "a" * 80})
    assert len(release.the("RayService")["metadata"]["name"]) <= 47
