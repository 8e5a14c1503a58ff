"""TLS of HTTP and gRPC on real sockets, with certificates that `openssl` makes."""

import os
import shutil
import ssl
import subprocess
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from socket import create_connection

import grpc
import pytest
from tritonclient.grpc import service_pb2_grpc

from serve.config import ServerConfig
from serve.errors import InvalidRequest
from serve.http.tls import InvalidCertificate, RenewedTls, TlsFiles
from serve.servers import tls_files
from tests.serve.http.grpc.conftest import asked, grpc_address
from tests.serve.support.certificates import NEEDS_OPENSSL, Authority
from tests.serve.support.server_process import ServerProcess, run_offramp
from tests.support.patience import until

pytestmark = NEEDS_OPENSSL


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ca")


@pytest.fixture
def files(authority: Authority, tmp_path: Path) -> TlsFiles:
    made = authority.sign("first")
    for path in (made.cert, made.key):
        shutil.copy(path, tmp_path)
    return TlsFiles(tmp_path / made.cert.name, tmp_path / made.key.name)


def trusting(
    authority: Authority, client: TlsFiles | None = None, protocol: str = ""
) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.cert))
    if client:
        context.load_cert_chain(client.cert, client.key)
    if protocol:
        context.set_alpn_protocols([protocol])
    return context


def subject(port: int, context: ssl.SSLContext) -> str:
    """Return the name on the certificate that a new connection sees."""
    with (
        create_connection(("127.0.0.1", port), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        cert = secure.getpeercert()
        assert cert
        return str(dict(part[0] for part in cert["subject"])["commonName"])  # type: ignore[misc]


def status_over_http(port: int, context: ssl.SSLContext | None) -> int | None:
    """Return the status of an answer over TLS, or without; None if there is no answer."""
    asking: HTTPConnection = HTTPConnection("127.0.0.1", port)
    if context:
        asking = HTTPSConnection("127.0.0.1", port, context=context)
    with closing(asking):
        try:
            asking.request("GET", "/health/live")
            return asking.getresponse().status
        except (OSError, HTTPException):
            return None


def code_over_grpc(address: str, credentials: grpc.ChannelCredentials | None) -> grpc.StatusCode:
    if credentials:
        channel = grpc.secure_channel(address, credentials)
    else:
        channel = grpc.insecure_channel(address)
    with channel:
        calls = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        code: grpc.StatusCode = calls.ModelInfer.future(asked(["w1"])).code()
        return code


def test_http_and_grpc_speak_tls_only_want_certificates_and_take_renewed_ones(
    bundle_folder: Path, files: TlsFiles, authority: Authority
) -> None:
    words = ["--standalone", "--port", "0", "--grpc-port", "0", "--precision", "fp32"]
    tls = ["--tls-cert", files.cert, "--tls-key", files.key, "--tls-client-ca", authority.cert]
    client, roots = authority.sign("client"), authority.cert.read_bytes()
    known = trusting(authority, client)
    with ServerProcess(bundle_folder, *words, *tls) as process:
        assert "curl https://127.0.0.1:" in process.curl_line()
        port, address = process.client().port, grpc_address(process)
        contexts = (known, trusting(authority), None)
        assert [status_over_http(port, each) for each in contexts] == [200, None, None]
        own = grpc.ssl_channel_credentials(roots, client.key.read_bytes(), client.cert.read_bytes())
        credentials = (own, grpc.ssl_channel_credentials(roots), None)
        ok, refused = grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE
        assert [code_over_grpc(address, each) for each in credentials] == [ok, refused, refused]

        def subjects() -> set[str]:
            grpc_port = int(address.rpartition(":")[2])
            of_grpc = subject(grpc_port, trusting(authority, client, "h2"))
            return {subject(port, known), of_grpc}

        assert subjects() == {"first"}
        renewed = authority.sign("second")
        for new, old in ((renewed.cert, files.cert), (renewed.key, files.key)):
            shutil.copy(new, f"{old}.new")
            os.replace(f"{old}.new", old)
        until(lambda: subjects() == {"second"}, every_s=0.2)


def test_broken_renewal_changes_nothing(
    files: TlsFiles, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("serve.http.tls._RELOAD_EVERY_S", 0)
    tls = RenewedTls(files)
    first = tls.context()
    files.cert.write_text("no certificate")
    assert tls.context() is first
    assert "the certificate stays as it was" in caplog.text
    files.cert.unlink()
    assert tls.context() is first


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"cert": "nowhere.pem"}, "nowhere.pem: No such file or directory"),
        ({"key": "other.key"}, "do not belong together"),
        ({"cert": "text.pem"}, "no PEM files of a certificate, its key without a password"),
        ({"key": "locked.key"}, "no PEM files of a certificate, its key without a password"),
        ({"client_ca": "text.pem"}, "no PEM files"),
        ({"cert": "pipe"}, "pipe is no regular file"),
        ({"client_ca": "huge"}, "huge has"),
    ],
)
def test_files_that_cannot_be_used_are_refused_in_one_line(
    files: TlsFiles, authority: Authority, tmp_path: Path, wrong: dict[str, str], message: str
) -> None:
    shutil.copy(authority.sign("other").key, tmp_path / "other.key")
    (tmp_path / "text.pem").write_text("text")
    os.mkfifo(tmp_path / "pipe")
    with open(tmp_path / "huge", "wb") as huge:
        huge.truncate(1 << 40)
    lock = f"openssl ec -aes128 -passout pass:x -in {files.key} -out {tmp_path}/locked.key"
    subprocess.run(lock.split(), check=True, capture_output=True)
    fields = {"cert": files.cert, "key": files.key, **{k: tmp_path / v for k, v in wrong.items()}}
    with pytest.raises(InvalidCertificate, match=message) as raised:
        TlsFiles(**fields).context()
    assert "\n" not in str(raised.value)


def test_wrong_certificate_ends_the_start(bundle_folder: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere.pem"
    tls = ("--tls-cert", nowhere, "--tls-key", nowhere)
    ended = run_offramp("serve", bundle_folder, "--port", "0", "--precision", "fp32", *tls)
    assert (ended[0], ended[2]) == (2, f"offramp: {nowhere}: No such file or directory\n")


def test_certificate_without_its_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest):
        tls_files(ServerConfig(bundles=["x"], tls_cert=tmp_path))
