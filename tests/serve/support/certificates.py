"""Certificates that the program `openssl` makes."""

import shutil
import subprocess
from pathlib import Path

import pytest

from serve.http.tls import TlsFiles

NEEDS_OPENSSL = pytest.mark.skipif(not shutil.which("openssl"), reason="needs the program openssl")


class Authority:
    """A CA that signs certificates for 127.0.0.1."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        self.cert = folder / "ca.pem"
        self._openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=ca "
            f"-keyout {folder}/ca.key -out {self.cert}"
        )

    def sign(self, name: str) -> TlsFiles:
        """Make a key and a certificate."""
        cert, key = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        extension = self._folder / "extension"
        extension.write_text("subjectAltName=IP:127.0.0.1\n")
        self._openssl(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes "
            f"-subj /CN={name} -keyout {key} -out {cert}.csr"
        )
        self._openssl(
            f"x509 -req -in {cert}.csr -CA {self.cert} -CAkey {self._folder}/ca.key -days 2 "
            f"-CAcreateserial -extfile {extension} -out {cert}"
        )
        return TlsFiles(cert, key)

    def _openssl(self, arguments: str) -> None:
        subprocess.run(["openssl", *arguments.split()], check=True, capture_output=True)
