"""The load balancer of the tests: connections take turns, and who is gone is passed over."""

import asyncio
from collections.abc import Awaitable, Callable

from bus import server
from tests.e2e.kubernetes.robin import robin

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def test_connections_take_turns_and_who_is_gone_is_passed_over() -> None:
    def saying(name: bytes) -> Answer:
        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(name)
            writer.close()
            await writer.wait_closed()

        return answer

    async def heard(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        result = await reader.read()
        writer.close()
        await writer.wait_closed()
        return result

    first = await asyncio.start_server(saying(b"one"), "127.0.0.1", 0)
    two = await asyncio.start_server(saying(b"two"), "127.0.0.1", 0)
    ports = [each.sockets[0].getsockname()[1] for each in (first, two)]
    async with first, two, robin([*ports, server.free_port(0)]) as port:
        assert {await heard(port) for _ in range(6)} == {b"one", b"two"}
        two.close()
        assert {await heard(port) for _ in range(6)} == {b"one"}
        first.close()
        assert await heard(port) == b""
