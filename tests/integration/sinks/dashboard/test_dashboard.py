"""The dashboard's server against a real nats-server: what pages get, and what a query may do."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from nats.aio.client import Client

from schemas import codec
from schemas.settings import Settings
from schemas.subject import Names, token
from sinks import cluster
from sinks.dashboard.feed import cluster as cluster_feed
from sinks.dashboard.feed import newest
from sinks.history import view
from tests.support.dashboard import flight
from tests.support.dashboard.pages import cache, rows, served
from tests.unit.processors.prediction.fold.recordings import node_facts


async def events(answer: aiohttp.ClientResponse, count: int) -> list[tuple[str, Any]]:
    """Read the next events of a stream, without comments."""
    result: list[tuple[str, Any]] = []
    async with asyncio.timeout(60):
        while len(result) < count:
            lines = (await answer.content.readuntil(b"\n\n")).decode().splitlines()
            if lines[0].startswith("event: "):
                result.append((lines[0][7:], json.loads(lines[1][6:])))
    return result


async def event(answer: aiohttp.ClientResponse, wanted: str) -> Any:
    """Return the content of the next event of a kind."""
    while True:
        ((kind, content),) = await events(answer, 1)
        if kind == wanted:
            return content


async def query(web: aiohttp.ClientSession, address: str, sql: str) -> tuple[int, Any]:
    async with web.post(f"{address}/api/query", json={"sql": sql}) as answer:
        return answer.status, await answer.json()


@pytest.mark.slow
async def test_a_page_gets_all_nodes_and_then_those_that_change(
    client: Client, settings: Settings, web: aiohttp.ClientSession
) -> None:
    given = rows(60, names=["<script>alert(1)</script>"])
    await cache(client, given)
    async with served(client, settings) as address, web.get(f"{address}/api/cluster") as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        (kind, nodes), (_, facts), (_, totals) = await events(answer, 3)
        assert (kind, nodes["full"], facts) == ("nodes", True, {})
        by_name = {row[0]: dict(zip(nodes["columns"], row, strict=True)) for row in nodes["rows"]}
        assert by_name.keys() == {row.node for row in given}
        for row in given:
            shown = by_name[row.node]
            assert (shown["available"], shown["lower"], shown["binding"]) == (row.available, row.lower, row.binding)
        assert totals["nodes"] == 60
        assert totals["lower"] == sum(int(row.lower) for row in given)
        assert totals["stranded"] == [each._asdict() for each in cluster.stranded(given)]
        of_class = {each["workload"]: each for each in totals["classes"]}
        for total in cluster.totals(given):
            assert of_class[total.workload]["available"] == total.available
            assert of_class[total.workload]["fragmentation"] == total.fragmentation
        await cache(client, [given[7].model_copy(update={"available": 99.5})])
        change = await event(answer, "nodes")
        assert (change["full"], [row[:3:2] for row in change["rows"]]) == (False, [[given[7].node, 99.5]])


async def test_a_page_gets_the_names_of_nodes_that_have_expired(
    client: Client, settings: Settings, web: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_feed, "_TURN_SECONDS", 0.02)
    given = rows(3)
    await cache(client, given)
    async with served(client, settings) as address, web.get(f"{address}/api/cluster") as answer:
        ((_, nodes),) = await events(answer, 1)
        assert len(nodes["rows"]) == 3
        await cache(client, [given[1].model_copy(update={"at_us": 1})])
        assert await event(answer, "gone") == [given[1].node]


async def test_facts_of_a_node_that_kubernetes_has_deleted_are_gone(
    client: Client, settings: Settings, web: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_feed, "_TURN_SECONDS", 0.02)
    names = Names(settings.prefix)
    bucket = await client.jetstream().key_value(names.nodes_bucket)
    for node in ("a.b", "c"):
        await bucket.put(token(node), codec.encode(node_facts(node, 1, 3.8, 1 << 30)))
    async with served(client, settings) as address, web.get(f"{address}/api/cluster") as answer:
        facts: dict[str, Any] = {}
        while facts.keys() != {"a.b", "c"}:
            facts |= await event(answer, "facts")
        await bucket.delete(token("a.b"))
        assert await event(answer, "facts") == {"a.b": None}
        async with web.get(f"{address}/api/cluster") as later:
            assert (await event(later, "facts")).keys() == {"c"}


@pytest.mark.slow
async def test_classes_that_no_node_has_any_more_are_sent_to_no_page(
    client: Client, settings: Settings, web: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_feed, "_TURN_SECONDS", 0.02)
    monkeypatch.setattr(cluster_feed, "_SPARE_CLASSES", 3)
    (row, *_) = rows(1)
    (room, *_) = (row.classes or {}).values()
    async with served(client, settings) as address, web.get(f"{address}/api/cluster") as answer:
        await events(answer, 1)
        for number in range(12):
            await cache(client, [row.model_copy(update={"classes": {f"jobs/{number}": room}})])
            classes = (await event(answer, "nodes"))["classes"]
            assert classes[-1] == f"jobs/{number}"
            assert len(classes) <= 6


async def test_open_pages_get_all_nodes_again_after_the_feed_has_read_them_again(
    client: Client, settings: Settings, web: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_feed, "_TURN_SECONDS", 0.02)
    broken = asyncio.Event()
    real = newest.changes

    async def breaks_once(messages: Any, seconds: float) -> dict[str, Any]:
        if broken.is_set():
            broken.clear()
            raise TimeoutError
        return await real(messages, seconds)

    monkeypatch.setattr(newest, "changes", breaks_once)
    await cache(client, rows(2))
    async with served(client, settings) as address, web.get(f"{address}/api/cluster") as answer:
        await events(answer, 1)
        broken.set()
        nodes = await event(answer, "nodes")
        assert (nodes["full"], len(nodes["rows"])) == (True, 2)


async def test_a_page_of_a_node_gets_its_messages_and_no_other_s(
    client: Client, settings: Settings, web: aiohttp.ClientSession
) -> None:
    names = Names()
    async with served(client, settings) as address, web.get(f"{address}/api/node/a%2Eb") as answer:
        await answer.content.readuntil(b"\n\n")
        await asyncio.sleep(0.2)
        await client.publish(names.node("samples", "other"), b'{"of":"other"}')
        await client.publish(names.node("samples", "a.b"), b'{"of":\n"this"}')
        await client.publish(names.node("availability", "a.b"), b'{"of":2}')
        assert await events(answer, 2) == [("samples", {"of": "this"}), ("availability", {"of": 2})]


async def test_a_page_that_comes_while_the_feed_goes_to_rest_still_gets_all_nodes(
    client: Client, settings: Settings, web: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_feed, "_IDLE_SECONDS", 0.0)
    monkeypatch.setattr(cluster_feed, "_TURN_SECONDS", 0.02)
    await cache(client, rows(3))
    async with served(client, settings) as address:
        for _ in range(20):
            async with web.get(f"{address}/api/cluster") as answer:
                ((kind, nodes),) = await events(answer, 1)
            assert (kind, len(nodes["rows"])) == ("nodes", 3)


async def test_a_name_too_long_for_a_subject_is_refused_and_the_connection_lives(
    client: Client, settings: Settings, web: aiohttp.ClientSession
) -> None:
    async with served(client, settings) as address:
        async with web.get(f"{address}/api/node/{'n' * 4000}") as answer:
            assert answer.status == 400
        async with web.get(f"{address}/api/pipeline") as answer:
            assert (await answer.json())["errors"] == {}


@pytest.mark.slow
async def test_a_recording_of_a_range_is_a_file_and_what_is_none_is_reported(
    client: Client, settings: Settings, web: aiohttp.ClientSession
) -> None:
    begin = flight.record(settings.history_dir) / 1e6
    whole: dict[str, object] = {"from": begin, "to": begin + flight.SECONDS, "node": ""}
    async with served(client, settings) as address:

        async def asked(body: object, kind: str = "application/json") -> tuple[int, str, str]:
            headers = {"Content-Type": kind}
            async with web.post(f"{address}/api/recording", data=json.dumps(body), headers=headers) as answer:
                return answer.status, answer.content_type, await answer.text()

        status, kind, text = await asked(whole)
        assert (status, kind, "flight recorder" in text) == (200, "text/html", True)
        assert (await asked(whole, "text/plain"))[0] == 415
        unusable: list[object] = [[], {}, whole | {"from": "0"}, {"from": 0, "to": 1}]
        for wrong in unusable:
            assert (await asked(wrong))[0] == 400
        for empty in ({"to": 0}, {"to": 1e18}, {"from": float("nan")}, {"node": "x"}, {"from": 0, "to": 1}):
            status, kind, text = await asked(whole | empty)
            assert (status, kind, bool(json.loads(text)["error"])) == (200, "application/json", True)


@pytest.mark.slow
async def test_queries_read_the_history_and_nothing_else(
    client: Client, settings: Settings, web: aiohttp.ClientSession, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("of others")
    async with served(client, settings, query_rows=3, query_seconds=1) as address:
        status, content = await query(web, address, "SELECT 1")
        assert (status, "no history" in content["error"]) == (200, True)
        view.create(settings.history_dir)
        assert await query(web, address, "SELECT count(*) AS n, count(*) FROM samples") == (
            200,
            {"columns": ["n", "count_star()"], "rows": [[0, 0]], "truncated": False},
        )
        status, content = await query(web, address, "SELECT 'NaN'::DOUBLE, range FROM range(5)")
        assert (status, content["rows"], content["truncated"]) == (200, [[None, 0], [None, 1], [None, 2]], True)
        for refused in (
            f"SELECT * FROM read_text('{tmp_path}/secret')",
            f"COPY (SELECT 1) TO '{tmp_path}/out'",
            f"EXPLAIN ANALYZE COPY (SELECT 1) TO '{tmp_path}/out'",
            f"ATTACH '{tmp_path}/other.db'",
            "INSTALL httpfs",
            "SELECT 1; SELECT 2",
            "SELEC",
            "",
            "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b",
        ):
            status, content = await query(web, address, refused)
            assert status == 200, refused
            assert content["error"], refused
        assert not (tmp_path / "out").exists()
        for body, kind, status in (
            (b"{", "application/json", 400),
            (b'{"sql": 3}', "application/json", 400),
            (b"[]", "application/json", 400),
            (b'{"sql": "SELECT 1"}', "text/plain", 415),
            (b'{"sql": "' + b" " * 70_000 + b'"}', "application/json", 413),
        ):
            async with web.post(f"{address}/api/query", data=body, headers={"Content-Type": kind}) as answer:
                assert answer.status == status, body[:20]


async def status_of(web: aiohttp.ClientSession, address: str) -> int:
    async with web.get(address) as answer:
        return answer.status


@pytest.mark.slow
async def test_the_number_of_open_pages_is_bounded(
    client: Client, settings: Settings, web: aiohttp.ClientSession
) -> None:
    async with served(client, settings, viewers_max=1) as address, web.get(f"{address}/api/node/a") as first:
        assert first.status == 200
        async with web.get(f"{address}/api/node/b") as second:
            assert second.status == 503
            async with web.get(f"{address}/api/about") as about:
                assert (await about.json())["refusal"] == (await second.text()).strip()
        first.close()
        async with asyncio.timeout(5):
            while await status_of(web, f"{address}/api/node/b") != 200:  # noqa: ASYNC110 # a page tells nobody of its end
                await asyncio.sleep(0.05)
