"""TLS with certificates that are read again when they are renewed."""

import logging
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from serve.bounded_file import UnfitFile, read_file
from serve.errors import OfframpError

log = logging.getLogger(__name__)

# The files are looked at so often while connections come.
_RELOAD_EVERY_S = 1.0
_MOST_BYTES: Final = 4 << 20


class InvalidCertificate(OfframpError):
    """A certificate, key or client CA cannot be used."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of a server.

    Attributes:
        cert: certificate, followed by the chain of those that signed it.
        key: the certificate's private key, without a password.
        client_ca: clients must show a certificate that one of these has signed; None for no
            certificates of clients.
    """

    cert: Path
    key: Path
    client_ca: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Return a context with the files as they are now: TLS 1.2 or later, ALPN HTTP/1.1.

        Raises:
            InvalidCertificate: a file cannot be used.
        """
        self._check()
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.set_alpn_protocols(["http/1.1"])
        try:
            # With a password given, OpenSSL does not ask for one on the terminal.
            made.load_cert_chain(self.cert, self.key, password="")
            if self.client_ca:
                made.load_verify_locations(self.client_ca)
                made.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ValueError) as error:
            raise InvalidCertificate(self._explain(error)) from None
        return made

    def state(self) -> tuple[tuple[int, int], ...]:
        """Return what changes when a file is renewed."""
        return tuple((s.st_mtime_ns, s.st_ino) for s in (path.stat() for path in self._paths))

    @property
    def _paths(self) -> list[Path]:
        return [path for path in (self.cert, self.key, self.client_ca) if path]

    def _check(self) -> None:
        """Refuse files that cannot be read, or that OpenSSL would read without end."""
        for path in self._paths:
            try:
                read_file(path, _MOST_BYTES)
            except UnfitFile as error:
                raise InvalidCertificate(f"{path} {error}") from None
            except OSError as error:
                raise InvalidCertificate(f"{path}: {error.strerror}") from None

    def _explain(self, error: Exception) -> str:
        reason = getattr(error, "reason", None)
        if reason == "KEY_VALUES_MISMATCH":
            return f"the certificate {self.cert} and the key {self.key} do not belong together"
        names = ", ".join(map(str, self._paths))
        return f"{names}: no PEM files of a certificate, its key without a password, and CAs"


class RenewedTls:
    """The context for the next connection."""

    def __init__(self, files: TlsFiles) -> None:
        """Read the files.

        Raises:
            InvalidCertificate: a file cannot be used.
        """
        self._files = files
        self._context = files.context()
        self._state = files.state()
        self._looked_s = time.monotonic()

    def context(self) -> ssl.SSLContext:
        """Return the context; renewed files that cannot be used change nothing."""
        now_s = time.monotonic()
        if now_s >= self._looked_s + _RELOAD_EVERY_S:
            self._looked_s = now_s
            try:
                self._reload()
            except (InvalidCertificate, OSError) as error:
                log.error("the certificate stays as it was: %s", error)
        return self._context

    def _reload(self) -> None:
        state = self._files.state()
        if state != self._state:
            self._context = self._files.context()
            # Only now: of files that are renewed one after the other, the last makes it work.
            self._state = state
            log.info("the certificate %s was read again", self._files.cert)
