"""Streams: what is stored, for how long, and what is answered."""

import asyncio
import base64

import nats.errors
import pytest
from nats.aio.client import Client

from schemas.subject import partition
from tests.support.server.raw import SECOND, api, error, eventually, fill, info, publish, stream


async def test_a_message_is_answered_with_its_place(client: Client) -> None:
    await stream(client)
    assert await publish(client, "s.a", b"x") == {"stream": "S", "seq": 1}
    assert await publish(client, "s.b", b"y") == {"stream": "S", "seq": 2}


async def test_a_request_that_nobody_takes_is_answered_at_once(client: Client) -> None:
    with pytest.raises(nats.errors.NoRespondersError):
        await client.request("nobody", b"", timeout=2)


@pytest.mark.cases
async def test_the_same_id_is_stored_once_within_the_window_and_again_behind_it(client: Client) -> None:
    await stream(client, duplicate_window=SECOND // 2)
    await publish(client, "s.a", b"x", Nats_Msg_Id="i")
    assert await publish(client, "s.b", b"y", Nats_Msg_Id="i") == {"stream": "S", "seq": 1, "duplicate": True}
    await asyncio.sleep(1)
    assert await publish(client, "s.a", b"x", Nats_Msg_Id="i") == {"stream": "S", "seq": 2}


async def test_a_partition_is_the_hash_of_its_tokens(client: Client) -> None:
    nodes = ["a", "node-1", "ip-10_0_0_7", "my=5Fhost", *(f"n{number}" for number in range(30))]
    dest = "s.part.{{partition(16,2)}}.{{wildcard(1)}}.{{wildcard(2)}}"
    await stream(client, subjects=["t.*.*", "s.model"], subject_transform={"src": "t.*.*", "dest": dest})
    for node in nodes:
        await publish(client, f"t.samples.{node}")
    await publish(client, "s.model")
    for number, node in enumerate(nodes, 1):
        stored = (await api(client, "STREAM.MSG.GET.S", {"seq": number}))["message"]["subject"]
        assert stored == f"s.part.{partition(node, 16)}.samples.{node}"
    assert (await api(client, "STREAM.MSG.GET.S", {"seq": len(nodes) + 1}))["message"]["subject"] == "s.model"


async def test_only_the_newest_of_a_subject_are_kept(client: Client) -> None:
    await stream(client, max_msgs_per_subject=2)
    for subject in ("s.a", "s.b", "s.a", "s.a"):
        await publish(client, subject)
    state = await info(client)
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (3, 2, 4)


async def test_the_oldest_make_room_or_the_newest_are_refused(client: Client) -> None:
    for number, discard in enumerate(("old", "new")):
        await api(client, "STREAM.DELETE.S")
        await stream(client, max_bytes=1000, discard=discard)
        answers = [await publish(client, "s.a", b"x" * 100, Some="header") for _ in range(10)]
        state = await info(client)
        assert state["messages"] == 6
        assert state["first_seq"] == (1 if number else 5)
        assert [error(answer) for answer in answers[6:]] == [10077 * number] * 4


@pytest.mark.cases
async def test_a_message_goes_at_its_age(client: Client) -> None:
    await stream(client, max_age=SECOND)
    await fill(client, 3)
    assert (await info(client))["messages"] == 3

    async def gone() -> bool:
        return bool((await info(client))["messages"] == 0)

    await eventually(gone)
    state = await info(client)
    assert (state["first_seq"], state["last_seq"]) == (4, 3)


@pytest.mark.cases
async def test_a_message_goes_at_the_end_of_its_own_time(client: Client) -> None:
    await stream(client, allow_msg_ttl=True)
    await publish(client, "s.a", Nats_TTL="1s")
    await publish(client, "s.b", Nats_TTL="never")
    assert error(await publish(client, "s.b", Nats_TTL="soon")) == 10165

    async def gone() -> bool:
        return bool((await info(client))["messages"] == 1)

    await eventually(gone)
    assert (await info(client))["first_seq"] == 2


async def test_a_write_that_expects_another_sequence_is_refused_and_says_which_it_is(client: Client) -> None:
    await stream(client)
    assert (await publish(client, "s.a", expected=0))["seq"] == 1
    refused = await publish(client, "s.a", expected=0)
    assert refused["error"] == {"code": 400, "err_code": 10071, "description": "wrong last sequence: 1"}
    await publish(client, "s.b")
    assert (await publish(client, "s.a", expected=1))["seq"] == 3
    assert error(await publish(client, "s.c", expected=3)) == 10071
    await api(client, "STREAM.PURGE.S", {})
    assert error(await publish(client, "s.a", expected=3)) == 10071
    assert (await publish(client, "s.a", expected=0))["seq"] == 4
    assert error(await publish(client, "s.a", Nats_Expected_Stream="T")) == 10060
    assert error(await publish(client, "s.a", Nats_Expected_Last_Sequence=3)) == 10071


async def test_stored_messages_are_found_by_place_and_by_subject(client: Client) -> None:
    await stream(client, allow_direct=True)
    for number, subject in enumerate(("s.a", "s.b", "s.a"), 1):
        await publish(client, subject, b"%d" % number, Kind="k")
    js = client.jetstream()
    for direct in (False, True):
        assert (await js.get_msg("S", seq=2, direct=direct)).data == b"2"
        newest = await js.get_msg("S", subject="s.a", direct=direct)
        assert (newest.data, newest.seq, newest.subject) == (b"3", 3, "s.a")
        assert (newest.headers or {})["Kind"] == "k"
        with pytest.raises(Exception, match=r"(?i)not ?found|no message"):
            await js.get_msg("S", seq=9, direct=direct)
    following = await api(client, "STREAM.MSG.GET.S", {"next_by_subj": "s.*", "seq": 3})
    assert base64.b64decode(following["message"]["data"]) == b"3"
    assert error(await api(client, "STREAM.MSG.GET.S", {"last_by_subj": "s.z"})) == 10037


async def test_a_purge_takes_what_it_names_and_sequences_go_on(client: Client) -> None:
    await stream(client)
    for subject in ("s.a", "s.b", "s.a", "s.b", "s.a"):
        await publish(client, subject)
    assert (await api(client, "STREAM.PURGE.S", {"filter": "s.a", "keep": 1}))["purged"] == 2
    assert (await api(client, "STREAM.PURGE.S", {"seq": 4}))["purged"] == 1
    assert (await info(client))["messages"] == 2
    assert (await api(client, "STREAM.PURGE.S"))["purged"] == 2
    state = await info(client)
    assert (state["first_seq"], state["last_seq"]) == (6, 5)
    assert (await publish(client, "s.a"))["seq"] == 6


async def test_a_rollup_replaces_its_subject(client: Client) -> None:
    await stream(client, allow_rollup_hdrs=True)
    await fill(client, 3)
    await publish(client, "s.b")
    await publish(client, "s.a", Nats_Rollup="sub")
    state = await info(client)
    assert (state["messages"], state["first_seq"]) == (2, 4)


async def test_wrong_requests_are_refused_with_the_servers_codes(client: Client) -> None:
    await stream(client)
    await stream(client)
    assert error(await api(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"]})) == 10058
    assert error(await api(client, "STREAM.CREATE.T", {"name": "T", "subjects": ["s.>"]})) == 10065
    assert error(await api(client, "STREAM.CREATE.T", {"name": "T", "subjets": ["t"]})) == 10025
    assert error(await api(client, "STREAM.INFO.T")) == 10059
    assert error(await api(client, "CONSUMER.INFO.S.c")) == 10014
    assert error(await api(client, "CONSUMER.CREATE.T", {"stream_name": "T", "config": {}})) == 10059


async def test_a_stream_made_again_is_another_one(client: Client) -> None:
    first = (await stream(client))["created"]
    await fill(client, 1)
    await api(client, "STREAM.DELETE.S")
    second = (await stream(client))["created"]
    assert first != second
    assert (await publish(client, "s.a"))["seq"] == 1
