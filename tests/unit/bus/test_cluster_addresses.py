"""What a client learns of a cluster's servers, and that it forgets those that have left."""

from urllib.parse import urlparse

import pytest
from nats.aio.client import Srv

from bus.connection import Connection

TLS = {"tls_required": True}


@pytest.fixture
def client() -> Connection:
    result = Connection()
    result.options |= {"dont_randomize": True, "max_reconnect_attempts": -1}
    result._server_info = TLS
    server = Srv(urlparse("tls://nats.example:4222"))
    result._server_pool, result._current_server = [server], server
    return result


def addresses(client: Connection) -> list[str]:
    return [server.uri.netloc for server in client._server_pool]


async def test_servers_that_have_left_the_cluster_are_not_tried_any_more(client: Connection) -> None:
    for number in range(1, 5):
        await client._process_info(TLS | {"connect_urls": [f"10.0.0.{number}:4222", f"10.0.1.{number}:4222"]})
    assert addresses(client) == ["nats.example:4222", "10.0.0.4:4222", "10.0.1.4:4222"]
    await client._process_info(TLS)  # a server that lists none says nothing of them
    assert len(addresses(client)) == 3


async def test_a_connected_server_that_is_not_listed_stays(client: Connection) -> None:
    await client._process_info(TLS | {"connect_urls": ["10.0.0.1:4222"]})
    client._current_server = client._server_pool[1]
    await client._process_info(TLS | {"connect_urls": ["10.0.0.2:4222"]})
    assert addresses(client) == ["nats.example:4222", "10.0.0.1:4222", "10.0.0.2:4222"]


async def test_every_server_has_to_show_a_certificate_of_the_name_that_the_user_gave(client: Connection) -> None:
    await client._process_info(TLS | {"connect_urls": ["10.0.0.1:4222"]})
    client._current_server = client._server_pool[1]  # found by its address, as those that it lists
    await client._process_info(TLS | {"connect_urls": ["10.0.0.1:4222", "10.0.0.2:4222"]})
    assert [server.tls_name for server in client._server_pool] == [None, "nats.example", "nats.example"]
