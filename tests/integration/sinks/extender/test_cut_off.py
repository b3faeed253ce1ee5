"""An extender that was cut off for longer than markers of ended pods are kept keeps no pod that has ended meanwhile."""

import time
from types import SimpleNamespace

import pytest
from nats.aio.client import Client

from schemas import codec
from schemas.settings import Settings
from sinks.extender.feed import follow, source
from spazio.command import watch
from tests.e2e.kubernetes.watch.watching import until
from tests.integration.sinks.extender.test_silent_nodes import NAMES, followed
from tests.support.extender.placement import pod

BUCKET = f"KV_{NAMES.pods_bucket}"


async def bind(client: Client, *uids: str) -> None:
    for uid in uids:
        facts = pod(uid, 2, node="a", at_us=time.time_ns() // 1000)
        await client.jetstream().publish(f"$KV.{NAMES.pods_bucket}.{uid}", codec.encode(facts))


@pytest.mark.parametrize(("seconds", "left"), [(2900.0, {"ended", "lives", "new"}), (3100.0, {"lives", "new"})])
async def test_pods_that_ended_while_it_was_cut_off_are_gone_though_no_marker_is_left(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch, seconds: float, left: set[str]
) -> None:
    await bind(client, "ended", "lives")
    async with followed(client, settings) as state:
        assert set(state.pods.bound) == {"ended", "lives"}
        # A purge leaves no message at all, as a marker that has expired.
        await client.jetstream().purge_stream(BUCKET, subject=f"$KV.{NAMES.pods_bucket}.ended")
        later = SimpleNamespace(time=lambda: time.time() + seconds, time_ns=time.time_ns)
        monkeypatch.setattr(source, "time", later)
        await bind(client, "new")

        async def came() -> bool:
            return "new" in state.pods.bound

        await until(came, 10, lambda: set(state.pods.bound))
        for passed in (0, 61):
            state.pods.age(time.time_ns() // 1000 + passed * 1_000_000)
        assert set(state.pods.bound) == left


def test_the_watch_keeps_markers_of_ended_pods_for_longer_than_the_extender_relies_on() -> None:
    assert watch._POD_ENDS["Nats-TTL"] == "1h"
    assert follow._MARKED_SECONDS < 3600
