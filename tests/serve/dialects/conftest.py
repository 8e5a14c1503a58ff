from tests.serve.api.conftest import server, servers, start_server

__all__ = ["server", "servers", "start_server"]
