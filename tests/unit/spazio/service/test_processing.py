"""The tasks of a processor follow the stream as it is, whatever this processor's settings ask for."""

from bus.client import Client
from processors.rows.quota import LEAST
from schemas import settings as all_settings
from schemas.live import Live
from spazio.service import processing


async def test_nodes_are_shared_among_the_partitions_that_the_stream_has(client: Client) -> None:
    live = Live(all_settings.load({"nats_partitions": "8"}, environ={}))
    quotas = [getattr(work.fold._state, "quota", None) for work in processing._works(client, live, 2)]
    assert [quota.limit for quota in quotas if quota is not None] == [LEAST // 2] * 4
