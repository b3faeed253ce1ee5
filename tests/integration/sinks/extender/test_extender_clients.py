"""Clients of the extender that speak no HTTP, an old one, slowly or too much: none hinders the others."""

import asyncio
import json
import logging
from contextlib import AsyncExitStack

import pytest
from prometheus_client import REGISTRY

from sinks.serving.connection import Limits
from tests.integration.sinks.extender.recorded import counted, recorded
from tests.support.extender.asking import Wire, lab, post, question


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


async def test_a_client_that_expects_a_continue_gets_it() -> None:
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


async def test_what_is_no_http_is_refused_and_logged_nowhere(caplog: pytest.LogCaptureFixture) -> None:
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
        before = REGISTRY.get_sample_value("spazio_server_cut_total", {"reason": "slow"}) or 0
        wire.writer.transport.pause_reading()  # type: ignore[attr-defined] # a socket's transport has it
        request = post("filter", question(names))
        async with asyncio.timeout(60):
            try:
                while True:  # until what the system holds for both sides is full
                    await wire.send(request)
            except ConnectionError:
                pass
        assert REGISTRY.get_sample_value("spazio_server_cut_total", {"reason": "slow"}) == before + 1
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
