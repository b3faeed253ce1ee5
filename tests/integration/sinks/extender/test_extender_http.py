"""The extender over HTTP: what schedulers ask is answered, and nothing that a client does hinders the others."""

import asyncio
import json
import logging
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from bus.health import Health
from schemas.sections.placement import Extender
from schemas.settings import SettingsError
from sinks.extender.web import server
from sinks.extender.web.connection import Limits
from tests.support.asking import POD, Rule, Wire, lab, post, question

RECORDED = Path(__file__).parents[3] / "golden" / "extender"
FORMS = ("names", "nodes")


def recorded(name: str) -> bytes:
    return (RECORDED / f"{name}.http").read_bytes()


def counted(verb: str, status: str) -> float:
    labels = {"verb": verb, "status": status}
    return REGISTRY.get_sample_value("spazio_extender_requests_total", labels) or 0


async def test_each_recorded_request_is_answered_over_one_connection() -> None:
    async with lab(bind=True) as running, running.wire() as wire:
        for form in FORMS:
            await wire.send(recorded(f"filter-{form}"))
            status, headers, body = await wire.answer()
            assert (status, headers["content-type"]) == (200, "application/json")
            assert "transfer-encoding" not in headers
            result = json.loads(body)
            assert result["FailedAndUnresolvableNodes"] == {"lab-0": "it ends in 0"}
            assert (result["FailedNodes"], result["Error"]) == ({}, "")
            if form == "names":
                assert (result["Nodes"], sorted(result["NodeNames"])) == (None, ["lab-1", "lab-2"])
            else:
                assert result["NodeNames"] is None
                assert sorted(node["metadata"]["name"] for node in result["Nodes"]["items"]) == ["lab-1", "lab-2"]

            await wire.send(recorded(f"prioritize-{form}"))
            status, _, body = await wire.answer()
            assert status == 200
            assert sorted(json.loads(body), key=lambda each: each["Host"]) == [
                {"Host": f"lab-{place}", "Score": place} for place in range(3)
            ]

            await wire.send(recorded(f"preempt-{form}"))
            status, _, body = await wire.answer()
            assert (status, list(json.loads(body))) == (200, ["NodeNameToMetaVictims"])
            assert sorted(json.loads(body)["NodeNameToMetaVictims"]) == ["lab-1", "lab-2"]

            await wire.send(recorded(f"bind-{form}"))
            status, _, body = await wire.answer()
            asked = json.loads(recorded(f"bind-{form}").partition(b"\r\n\r\n")[2])
            assert (status, running.rule.bound[asked["PodUID"]]) == (200, asked["Node"])
            assert json.loads(body) == {"Error": ""}


async def test_five_thousand_names_are_answered_with_all_that_pass() -> None:
    names = [f"worker-{number}" for number in range(5000)]
    async with lab() as running:
        status, body = await running.ask("/scheduler/filter", question(names))
        assert status == 200
        assert json.loads(body)["NodeNames"] == [name for name in names if not name.endswith("0")]
        _, body = await running.ask("/scheduler/prioritize", question(names))
        assert {each["Host"]: each["Score"] for each in json.loads(body)} == {name: int(name[-1]) for name in names}


async def test_ten_megabytes_of_whole_nodes_come_back_as_they_came() -> None:
    document = json.loads(recorded("filter-nodes").partition(b"\r\n\r\n")[2])["Nodes"]["items"][0]
    document["metadata"]["annotations"] = {"example/note": "é" * 320}
    nodes = [{**document, "metadata": {**document["metadata"], "name": f"worker-{number}"}} for number in range(3500)]
    body = json.dumps({"Pod": POD, "Nodes": {"items": nodes}, "NodeNames": None}).encode()
    assert 10e6 < len(body) < 16e6
    async with lab() as running:
        status, answer = await running.ask("/scheduler/filter", body)
    assert status == 200
    assert json.loads(answer)["Nodes"]["items"] == [node for node in nodes if node["metadata"]["name"][-1] != "0"]


async def test_a_pod_that_cannot_be_judged_is_an_error_that_the_scheduler_shows() -> None:
    async with lab() as running:
        status, body = await running.ask("/scheduler/filter", {"Pod": {}, "NodeNames": []})
        assert (status, json.loads(body)["Error"]) == (200, "the pod has no metadata")
        status, body = await running.ask("/scheduler/filter", question(metadata={"name": "puzzles"}))
        assert (status, json.loads(body)["Error"]) == (200, "nobody knows")
        status, body = await running.ask("/scheduler/prioritize", {"Pod": {}, "NodeNames": []})
        assert (status, body) == (400, "prioritize: the pod has no metadata\n")
        status, body = await running.ask("/scheduler/preempt", {"Pod": {}})
        assert (status, body) == (400, "preempt: the pod has no metadata\n")


async def test_what_goes_wrong_while_binding_is_said() -> None:
    whole = {"PodName": "p", "PodNamespace": "n", "PodUID": "u", "Node": "n-0"}
    async with lab(bind=True) as running:
        assert json.loads((await running.ask("/scheduler/bind", whole))[1]) == {"Error": "n/p does not go to n-0"}
        other = {**whole, "PodNamespace": "nowhere", "Node": "n-1"}
        assert json.loads((await running.ask("/scheduler/bind", other))[1]) == {"Error": "there is no such namespace"}


async def test_nothing_is_bound_unless_settings_say_so() -> None:
    async with lab() as running:
        status, body = await running.ask(
            "/scheduler/bind", {"PodName": "p", "PodNamespace": "n", "PodUID": "u", "Node": "n-1"}
        )
        assert status == 200
        assert "SPAZIO_EXTENDER_BIND" in json.loads(body)["Error"]
        assert running.rule.bound == {}


async def test_an_unexpected_error_is_told_once_with_its_trace_and_the_service_lives(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with lab() as running:
        before = counted("filter", "500")
        for _ in range(3):
            status, body = await running.ask("/scheduler/filter", question(metadata={"name": "breaks"}))
            assert (status, "RuntimeError" in body) == (500, True)
        assert counted("filter", "500") == before + 3
        messages = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert [record.message for record in messages] == ["request.failed"]
        assert messages[0].exc_info is not None
        assert (await running.ask("/scheduler/filter", question()))[0] == 200


async def test_other_methods_and_paths_are_turned_away_with_what_is_right() -> None:
    async with lab() as running:
        for path in ("/scheduler/filter", "/filter"):
            async with aiohttp.request("GET", running.root + path) as response:
                assert (response.status, response.headers["Allow"]) == (405, "POST")
        async with aiohttp.request("POST", f"{running.root}/healthz") as response:
            assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")
        status, body = await running.ask("/scheduler/fliter", question())
        assert (status, "/scheduler/VERB" in body) == (404, True)
        assert (await running.ask("/filter", question()))[0] == 200


async def test_health_is_what_the_service_says() -> None:
    async with lab() as running:
        assert await running.ask("/healthz", b"", method="GET") == (200, "ok\n")
        running.health.degrade("extender", "it is slow")
        assert (await running.ask("/healthz", b"", method="GET"))[0] == 200
        running.health.degrade("nats", "it is lost", dead=True)
        assert await running.ask("/healthz", b"", method="GET") == (503, "nats: it is lost\n")
        running.health.recover("nats")
        running.health.recover("extender")


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"{", b"[]", recorded("filter-names")[-300:]])
@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt", "bind"])
async def test_a_body_that_is_none_gets_a_sentence(verb: str, content: bytes) -> None:
    async with lab(bind=True) as running:
        status, body = await running.ask(f"/scheduler/{verb}", content)
        assert status == 400
        assert body.startswith(f"{verb}: Extender")


async def test_a_body_too_large_is_refused_before_it_is_read() -> None:
    async with lab(body_bytes=2000) as running:
        async with running.wire() as wire:
            await wire.send(b"POST /scheduler/filter HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999\r\n\r\n")
            status, _, body = await wire.answer()
            assert (status, b"SPAZIO_EXTENDER_BODY_BYTES" in body) == (413, True)
        async with running.wire() as wire:  # nobody says how much is to come
            head = b"POST /scheduler/filter HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            await wire.send(head + b"3e8\r\n" + b" " * 1000 + b"\r\n3e8\r\n" + b" " * 1000 + b"\r\n1\r\n \r\n0\r\n\r\n")
            assert (await wire.answer())[0] == 413
        assert (await running.ask("/scheduler/filter", question()))[0] == 200


async def test_a_body_in_chunks_is_read() -> None:
    async with lab() as running, running.wire() as wire:
        body = json.dumps(question()).encode()
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:7], body[7:])) + b"0\r\n\r\n"
        await wire.send(b"POST /scheduler/filter HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)
        status, _, answer = await wire.answer()
        assert (status, json.loads(answer)["NodeNames"]) == (200, ["n-1"])


async def test_a_client_that_waits_to_be_told_to_go_on_is_told() -> None:
    async with lab() as running, running.wire() as wire:
        head, _, body = post("filter", question(), more="Expect: 100-continue\r\n").partition(b"\r\n\r\n")
        await wire.send(head + b"\r\n\r\n")
        assert await wire.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await wire.send(body)
        assert (await wire.answer())[0] == 200


async def test_an_old_client_is_answered_and_its_connection_closed() -> None:
    async with lab() as running, running.wire() as wire:
        await wire.send(post("filter", question(), version="1.0"))
        status, _, body = await wire.answer()
        assert (status, json.loads(body)["NodeNames"]) == (200, ["n-1"])
        await wire.closed()


async def test_requests_sent_in_one_go_are_answered_in_order() -> None:
    async with lab() as running, running.wire() as wire:
        await wire.send(b"".join(post("filter", question([f"n-{number}1"])) for number in range(100)))
        for number in range(100):
            status, _, body = await wire.answer()
            assert (status, json.loads(body)["NodeNames"]) == (200, [f"n-{number}1"])


async def test_what_is_no_http_is_refused_and_said_to_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async with lab() as running:
        before = counted("other", "400")
        for garbage in (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"GARBAGE\r\n\r\n", b"POST / HTTP/9.9\r\n\r\n"):
            async with running.wire() as wire:
                await wire.send(post("filter", question()))
                assert (await wire.answer())[0] == 200
                await wire.send(garbage)
                assert (await wire.answer())[0] == 400
                await wire.closed()
        assert counted("other", "400") == before + 3
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_client_that_goes_away_in_the_middle_leaves_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    async with lab() as running:
        request = post("filter", question())
        for end in (10, len(request) - 5, len(request)):
            async with running.wire() as wire:
                await wire.send(request[:end])
        async with running.wire() as wire:
            await wire.send(post("filter", question(metadata={"name": "waits"})))
            await running.rule.waiting.wait()
        assert (await running.ask("/scheduler/filter", question()))[0] == 200
        running.rule.gate.set()
        assert (await running.ask("/scheduler/filter", question(metadata={"name": "waits"})))[0] == 200
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_client_that_sends_slowly_is_cut_off_and_hinders_nobody() -> None:
    async with lab(Limits(read_seconds=0.5)) as running:
        request = post("filter", question())

        async def drip(wire: Wire) -> None:
            for byte in request:
                await wire.send(bytes([byte]))
                await asyncio.sleep(0.1)

        async with running.wire() as slow, running.wire() as half, running.wire() as quick:
            await half.send(request[:-3])
            dripping = asyncio.create_task(drip(slow))
            for _ in range(50):
                await quick.send(request)
                assert (await quick.answer())[0] == 200
            await slow.closed()
            await half.closed()
            dripping.cancel()
            await asyncio.wait({dripping})
            await quick.send(request)
            assert (await quick.answer())[0] == 200


async def test_a_client_that_waits_for_its_answer_is_not_cut_off() -> None:
    async with lab(Limits(read_seconds=0.2)) as running, running.wire() as patient, running.wire() as slow:
        await patient.send(post("filter", question(metadata={"name": "waits"})))
        await running.rule.waiting.wait()
        await slow.send(b"POST ")
        await slow.closed()  # later than the other one began
        running.rule.gate.set()
        assert (await patient.answer())[0] == 200


async def test_a_client_that_takes_no_answer_is_cut_off() -> None:
    names = [f"worker-{number}{'x' * 200}1" for number in range(5000)]
    async with lab(Limits(write_seconds=0.5)) as running, running.wire() as wire:
        before = REGISTRY.get_sample_value("spazio_extender_cut_total", {"reason": "slow"}) or 0
        wire.writer.transport.pause_reading()  # type: ignore[attr-defined] # a socket's transport has it
        request = post("filter", question(names))
        async with asyncio.timeout(20):
            try:
                while True:  # until what the system holds for both sides is full
                    await wire.send(request)
            except ConnectionError:
                pass
        assert REGISTRY.get_sample_value("spazio_extender_cut_total", {"reason": "slow"}) == before + 1
        assert (await running.ask("/scheduler/filter", question()))[0] == 200


async def test_one_connection_too_many_closes_the_one_that_waits_longest() -> None:
    async with lab(Limits(connections=2)) as running, running.wire() as first, running.wire() as second:
        for wire in (first, second):
            await wire.send(post("filter", question()))
            await wire.answer()
        async with running.wire() as third:
            await third.send(post("filter", question()))
            assert (await third.answer())[0] == 200
            await first.closed()
            await second.send(post("filter", question()))
            assert (await second.answer())[0] == 200


async def test_what_is_being_answered_is_answered_before_the_service_ends() -> None:
    async with AsyncExitStack() as stack:
        async with lab() as running:
            wire = await stack.enter_async_context(running.wire())
            await wire.send(post("filter", question(metadata={"name": "waits"})))
            await running.rule.waiting.wait()
            asyncio.get_running_loop().call_later(0.2, running.rule.gate.set)
        assert (await wire.answer())[0] == 200
        await wire.closed()


async def test_the_address_tells_the_port_and_a_taken_one_is_a_fault_of_the_settings() -> None:
    async with lab() as running:
        port = int(running.root.rpartition(":")[2])
        assert running.address == f"http://127.0.0.1:{port}/scheduler"
        with pytest.raises(SettingsError, match=f"port {port} cannot be listened on.*--extender-port"):
            async with server.serve(Extender(port=port), Rule(), Health()):
                raise AssertionError("it is taken")
        with pytest.raises(SettingsError, match=r"192\.0\.2\.1 port 0 cannot be listened on"):
            async with server.serve(Extender(host="192.0.2.1", port=0, allow_anonymous=True), Rule(), Health()):
                raise AssertionError("it is not ours")


async def test_requests_are_counted_and_timed_by_verb() -> None:
    async with lab() as running:
        labels = {"verb": "prioritize"}
        timed = REGISTRY.get_sample_value("spazio_extender_request_seconds_count", labels) or 0
        before = counted("prioritize", "200")
        await running.ask("/scheduler/prioritize", question())
        assert counted("prioritize", "200") == before + 1
        assert REGISTRY.get_sample_value("spazio_extender_request_seconds_count", labels) == timed + 1


@pytest.mark.slow
def test_whatever_json_is_posted_the_service_answers_and_lives() -> None:
    keys = st.sampled_from(
        ["Pod", "Nodes", "NodeNames", "items", "metadata", "name", "uid", "UID", "Pods", "NumPDBViolations",
         "NodeNameToVictims", "NodeNameToMetaVictims", "PodName", "PodNamespace", "PodUID", "Node"]
    )  # fmt: skip
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    content = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(keys, inner), max_leaves=15)
    asked = st.tuples(st.sampled_from(["filter", "prioritize", "preempt", "bind"]), content)

    with asyncio.Runner() as runner:
        running_lab = lab(bind=True)
        running = runner.run(running_lab.__aenter__())

        @hypothesis_settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(asked)
        def holds(asked: tuple[str, Any]) -> None:
            verb, body = asked
            pod = {"Pod": POD, **body} if isinstance(body, dict) else body
            for each in (body, pod):
                assert runner.run(running.ask(f"/scheduler/{verb}", each))[0] in (200, 400)

        holds()
        assert runner.run(running.ask("/scheduler/filter", question()))[0] == 200
        runner.run(running_lab.__aexit__(None, None, None))
