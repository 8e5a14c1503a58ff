"""gRPC of `offramp serve --standalone`: TLS, the stop, a port that is taken."""

import os
import shutil
import signal
import ssl
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from socket import create_connection

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.grpc import InferenceServerClient, service_pb2_grpc

from serve.http.tls import TlsFiles
from tests.serve.http.grpc.conftest import asked, failure, grpc_address, texts
from tests.serve.support.certificates import NEEDS_OPENSSL, Authority
from tests.serve.support.live_server import LiveServer
from tests.serve.support.server_process import ServerProcess, run_offramp
from tests.support.patience import until

WORDS = ("--standalone", "--port", "0", "--precision", "fp32", "--grpc-port")
Status = health_pb2.HealthCheckResponse


def test_stop_is_announced_and_calls_in_flight_are_answered(bundle_folder: Path) -> None:
    with ServerProcess(bundle_folder, *WORDS, "0") as process, ExitStack() as stack:
        server, address = process.client(), grpc_address(process)
        channel = stack.enter_context(grpc.insecure_channel(address))
        pool = stack.enter_context(ThreadPoolExecutor(1))
        calls = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert next(watch).status == Status.SERVING
        changed = pool.submit(lambda: next(watch).status)
        asked_for = [calls.ModelInfer.future(asked(["w1 " * 60] * 200)) for _ in range(6)]
        until(lambda: server.metric("offramp_queue_depth") or asked_for[-1].done())
        process.send(signal.SIGTERM)
        assert changed.result() == Status.NOT_SERVING
        assert [call.code() for call in asked_for] == [grpc.StatusCode.OK] * 6
        assert process.exit_status() == 0
        assert process.output.endswith("stopped\n")
        assert failure(calls.ModelInfer, asked(["w1"]))[0] is grpc.StatusCode.UNAVAILABLE


def test_taken_port_ends_the_start(server: LiveServer, bundle_folder: Path) -> None:
    port = server.grpc_address.rpartition(":")[2]
    ended = run_offramp("serve", bundle_folder, *WORDS, port)
    assert ended.status == 2
    assert ended.error == (
        f"offramp: cannot listen on 127.0.0.1:{port}: Address already in use; choose another "
        "port or host\n"
    )


@NEEDS_OPENSSL
def test_tls_wants_certificates_and_takes_renewed_ones(bundle_folder: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    made, client = authority.sign("first"), authority.sign("client")
    files = TlsFiles(tmp_path / "cert.pem", tmp_path / "key.pem")
    shutil.copy(made.cert, files.cert)
    shutil.copy(made.key, files.key)
    tls = ("--tls-cert", files.cert, "--tls-key", files.key, "--tls-client-ca", authority.cert)
    with ServerProcess(bundle_folder, *WORDS, "0", *tls) as process:
        address = grpc_address(process)
        known = {
            "ssl": True,
            "root_certificates": str(authority.cert),
            "private_key": str(client.key),
            "certificate_chain": str(client.cert),
        }
        with InferenceServerClient(address, **known) as trusted:
            assert trusted.infer("tiny", [texts(["w1"])]).as_numpy("label").shape == (1, 1)
        for credentials in (None, grpc.ssl_channel_credentials(authority.cert.read_bytes())):
            with (
                grpc.secure_channel(address, credentials)
                if credentials
                else grpc.insecure_channel(address)
            ) as channel:
                calls = service_pb2_grpc.GRPCInferenceServiceStub(channel)
                code, _ = failure(calls.ModelInfer, asked(["w1"]))
                assert code is grpc.StatusCode.UNAVAILABLE
        renewed = authority.sign("second")
        for new, old in ((renewed.cert, files.cert), (renewed.key, files.key)):
            shutil.copy(new, f"{old}.new")
            os.replace(f"{old}.new", old)
        until(lambda: _subject(address, authority, client) == "second", every_s=0.2)


def _subject(address: str, authority: Authority, client: TlsFiles) -> str:
    """Return the name on the certificate that a new connection sees."""
    context = ssl.create_default_context(cafile=str(authority.cert))
    context.load_cert_chain(client.cert, client.key)
    context.set_alpn_protocols(["h2"])
    host, _, port = address.partition(":")
    with (
        create_connection((host, int(port)), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname=host) as secure,
    ):
        cert = secure.getpeercert()
        assert cert
        return str(dict(part[0] for part in cert["subject"])["commonName"])  # type: ignore[misc]
