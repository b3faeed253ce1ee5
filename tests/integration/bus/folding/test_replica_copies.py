"""How often a replica counts whose answer the server delivers several times."""

from nats.aio.client import Client
from nats.aio.msg import Msg

from bus.folding import worker_pool
from schemas.subject import Names

PREFIX = Names().prefix


async def test_a_replica_that_the_server_asks_twice_counts_once(client: Client) -> None:
    pool = worker_pool.WorkerPool(client, PREFIX, [], lambda _: {})
    service = await pool._announced()
    asked = []

    async def again(message: Msg) -> None:
        asked.append(message)
        await client.publish(f"$SRV.STATS.{PREFIX}.{service.id}", reply=message.reply)

    await client.subscribe(f"$SRV.STATS.{PREFIX}", cb=again)
    assert [each.identity for each in await worker_pool.replicas(client, PREFIX)] == [service.id]
    assert asked
    await service.stop()
