"""HAProxy and nginx on the loopback, publishing the classifying path alone."""

import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loadtest.http.server_process import ChildProcess, free_port
from tests.support.patience import until

_FORWARDING = "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;"
_HAPROXY = """
defaults
    mode http
    timeout connect 5s
    timeout client 10s
    timeout server 10s
    {more}
frontend published
    bind 127.0.0.1:{port}
    http-request deny deny_status 403 unless {{ path /v1/classify }}
    # HAProxy forgets the protocol of a request with a body; here it passes one on.
    http-request set-header Upgrade foo if {{ hdr(Connection) -i -m sub upgrade }}
    default_backend server
backend server
    http-reuse always
    server one 127.0.0.1:{upstream}
"""
# Upgrade is passed on as in nginx's own example for WebSockets.
_NGINX = """
daemon off;
user root;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
    upstream server {{ server 127.0.0.1:{upstream}; keepalive 32; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{ return 403; }}
        location = /v1/classify {{
            proxy_pass http://server;
            proxy_http_version 1.1;
            {more}
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $connection_upgrade;
        }}
    }}
}}
"""
_PROXIES = {
    "haproxy": (_HAPROXY, ""),
    "haproxy, forgiving": (_HAPROXY, "option accept-invalid-http-request"),
    "nginx": (_NGINX, ""),
    "nginx, unbuffered": (_NGINX, "proxy_request_buffering off;"),
}
_OPTIONS = {"haproxy": ["-db", "-q", "-f"], "nginx": ["-c"]}
PROXIES = list(_PROXIES)
# These add to X-Forwarded-For who has connected to them.
_PROXIES["haproxy, forwarding"] = (_HAPROXY, "option forwardfor")
_PROXIES["nginx, forwarding"] = (_NGINX, _FORWARDING)


@contextmanager
def behind(name: str, upstream: int, folder: Path) -> Iterator[int]:
    """Run a proxy in front of a server's port; yield the proxy's port.

    The test is skipped where the program is missing.
    """
    template, more = _PROXIES[name]
    command = name.partition(",")[0]
    program = shutil.which(command, path="/usr/sbin:/usr/bin:/usr/local/sbin")
    if program is None:
        pytest.skip(f"{command} is not installed")
    port = free_port()
    config = folder / "proxy.conf"
    config.write_text(template.format(port=port, upstream=upstream, folder=folder, more=more))
    with ChildProcess([program, *_OPTIONS[command], str(config)]) as process:
        until(lambda: process.status(0) is not None or _listens(port))
        assert process.status(0) is None, f"{name} has ended: {process.output}"
        yield port


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
