from tests.clients.test_clients import server

__all__ = ["server"]
