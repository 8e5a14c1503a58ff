"""TLS for gRPC with the same files as for HTTP, read again when they are renewed."""

from typing import Any

import grpc

from serve.http.tls import RenewedTls, TlsFiles


def server_credentials(files: TlsFiles) -> Any:
    """Return credentials that take renewed files; those that cannot be used change nothing.

    Raises:
        InvalidCertificate: a file cannot be used.
    """
    renewed = RenewedTls(files)
    seen = [renewed.context()]

    def fetch() -> Any:
        """Return new files; None where they have not changed. Called at every handshake."""
        context = renewed.context()
        if context is seen[0]:
            return None
        read = _configuration(files)
        seen[0] = context
        return read

    return grpc.dynamic_ssl_server_credentials(
        _configuration(files), fetch, require_client_authentication=files.client_ca is not None
    )


def _configuration(files: TlsFiles) -> Any:
    pair = (files.key.read_bytes(), files.cert.read_bytes())
    roots = files.client_ca.read_bytes() if files.client_ca else None
    return grpc.ssl_server_certificate_configuration([pair], roots)
