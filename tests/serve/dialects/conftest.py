from tests.serve.api.conftest import server, start_server

__all__ = ["server", "start_server"]
