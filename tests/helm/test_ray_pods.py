"""What Ray and KubeRay want of the pods."""

import warnings
from importlib.util import find_spec
from pathlib import Path

from tests.helm.chart import Object, Rendered
from tests.helm.conftest import Render
from tests.helm.matrix import GPU, RAYSERVICE

INJECTED = ("startupProbe", "readinessProbe", "livenessProbe", "command", "args")


def container(release: Rendered, name: str) -> Object:
    found: Object = release.pods()[name]["spec"]["containers"][0]
    return found


def environment(release: Rendered, name: str) -> dict[str, str]:
    return {v["name"]: v.get("value", "") for v in container(release, name)["env"]}


def test_kuberays_command_and_probes_are_left_alone(rendered: Render) -> None:
    # A readiness probe of one's own would drop the question to the proxy.
    release = rendered()
    for name in ("ray-head", "ray-worker"):
        assert not set(INJECTED) & set(container(release, name))


def test_head_runs_no_replica_and_gets_no_requests(rendered: Render) -> None:
    release = rendered()
    assert release.cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    [deployment] = release.serve_config["applications"][0]["deployments"]
    assert deployment["ray_actor_options"]["num_cpus"] > 0
    assert release.the("RayService")["spec"]["excludeHeadPodFromServeSvc"] is True


def test_every_start_parameter_is_a_string(rendered: Render) -> None:
    for values in ({}, GPU, RAYSERVICE["head settings"]):
        cluster = rendered(values).cluster
        for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
            assert all(isinstance(v, str) for v in group["rayStartParams"].values())


def test_ray_knows_every_start_parameter(rendered: Render) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own imports are not free of them
        from ray.scripts.scripts import start
    known = {option for parameter in start.params for option in parameter.opts}
    for values in ({}, GPU, RAYSERVICE["head settings"]):
        cluster = rendered(values).cluster
        for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
            assert {f"--{name}" for name in group["rayStartParams"]} <= known


def test_ray_serve_knows_every_flag(rendered: Render) -> None:
    spec = find_spec("ray")
    assert spec
    assert spec.origin
    constants = Path(spec.origin).parent / "serve" / "_private" / "constants.py"
    source = constants.read_text()
    flags = [name for name in environment(rendered(), "ray-head") if name.startswith("RAY_SERVE_")]
    assert flags
    for name in flags:
        assert f'"{name}"' in source, name


def test_haproxy_and_the_flags_for_throughput_come_together(rendered: Render) -> None:
    # The latter alone makes every worker unready.
    for values, proxy in (({}, True), (RAYSERVICE["python proxy"], False)):
        release = rendered(values)
        for name in ("ray-head", "ray-worker"):
            flags = environment(release, name)
            assert (flags.get("RAY_SERVE_ENABLE_HA_PROXY") == "1") is proxy
            assert (flags.get("RAY_SERVE_THROUGHPUT_OPTIMIZED") == "1") is proxy
            assert flags["RAY_SERVE_LOG_TO_STDERR"] == "1"
            assert flags["RAY_worker_niceness"] == "0"


def test_cluster_is_steered_with_a_token_unless_told_otherwise(rendered: Render) -> None:
    assert rendered().cluster["authOptions"] == {"mode": "token"}
    own = rendered(RAYSERVICE["token of one's own"]).cluster["authOptions"]
    assert own == {"mode": "token", "secretName": "ray-token"}
    assert "authOptions" not in rendered(RAYSERVICE["no token"]).cluster


def test_state_outlives_the_head_where_asked(rendered: Render) -> None:
    assert "gcsFaultToleranceOptions" not in rendered().cluster
    redis = rendered(RAYSERVICE["redis"]).cluster["gcsFaultToleranceOptions"]
    assert redis["redisAddress"] == "redis.db:6380"
    assert redis["redisPassword"]["valueFrom"]["secretKeyRef"]["name"] == "redis"
    volume = rendered(RAYSERVICE["rocksdb"]).cluster["gcsFaultToleranceOptions"]
    assert volume == {"backend": "rocksdb", "storage": {"size": "1Gi", "storageClassName": "ssd"}}


def test_gpu_workers_have_the_devices_that_replicas_ask_for(rendered: Render) -> None:
    release = rendered(GPU)
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


def test_cpu_replicas_say_that_they_want_no_gpu(rendered: Render) -> None:
    # Ray no longer hides GPUs from actors that ask for none.
    [application] = rendered().serve_config["applications"]
    assert application["args"]["device"] == "cpu"
    assert "num_gpus" not in application["deployments"][0]["ray_actor_options"]


def test_worker_leaves_the_cluster_before_it_ends(rendered: Render) -> None:
    spec = rendered().pods()["ray-worker"]["spec"]
    *_, script = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert script.index("ray drain-node") < script.index("sleep 50") < script.index("ray stop")
    assert spec["terminationGracePeriodSeconds"] > 50


def test_autoscaler_can_write_where_it_must(rendered: Render) -> None:
    release = rendered(RAYSERVICE["autoscaling"])
    options = release.cluster["autoscalerOptions"]
    assert options["securityContext"]["readOnlyRootFilesystem"] is True
    assert [m["mountPath"] for m in options["volumeMounts"]] == ["/tmp"]
    volumes = [v["name"] for v in release.pods()["ray-head"]["spec"]["volumes"]]
    assert options["volumeMounts"][0]["name"] in volumes


def test_names_leave_room_for_what_kuberay_appends(rendered: Render) -> None:
    release = rendered({"fullnameOverride": "a" * 80})
    assert len(release.the("RayService")["metadata"]["name"]) <= 47
