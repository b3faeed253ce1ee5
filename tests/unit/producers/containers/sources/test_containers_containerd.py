"""Following containerd's events: a real gRPC server that answers as containerd does, or does not."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers import clock as grid
from producers.containers.sources.damage import DAMAGED
from producers.containers.sources.source import Identity
from producers.containers.wire import protobuf
from producers.containers.wire.protobuf import field
from tests.unit.producers.containers.sources.containerd import UP, Fake, Heard, envelope, following

POD = {
    "io.kubernetes.pod.uid": "0a1b",
    "io.kubernetes.pod.namespace": "shop",
    "io.kubernetes.pod.name": "web-7d4b9c6f5-x2x9k",
}
INNER = {**POD, "io.kubernetes.container.name": "app", "io.cri-containerd.kind": "container"}
OUTER = {**POD, "io.cri-containerd.kind": "sandbox", "spazio.class": "jobs", "spazio.kind": "batch"}
RUNNING, STOPPED = 2, 3


def record(container: str, labels: Mapping[str, str], image: str = "hub.example/web:1") -> bytes:
    entries = b"".join(field(2, field(1, key) + field(2, value)) for key, value in labels.items())
    return field(1, container) + entries + field(3, image)


MESSAGES = st.lists(st.tuples(st.integers(1, 2000), st.integers(0, 2**63 - 1) | st.binary(max_size=300)), max_size=8)


@given(MESSAGES)
def test_what_was_encoded_is_decoded(message: list[tuple[int, int | bytes]]) -> None:
    assert list(protobuf.fields(b"".join(field(number, value) for number, value in message))) == message


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_refused(content: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert all(number >= 0 for number, _ in protobuf.fields(content))


@pytest.mark.parametrize("content", [b"\x0a\x05ab", b"\x80", b"\x0b", b"\xff" * 11, b"\x0d\x01"])
def test_a_message_that_is_cut_off_or_of_no_known_kind_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"cut off|wire type"):
        list(protobuf.fields(content))


def test_numbers_of_fixed_width_are_passed_over() -> None:
    assert list(protobuf.fields(b"\x0d\x01\0\0\0\x11\x02\0\0\0\0\0\0\0")) == [(1, 1), (2, 2)]


async def test_it_lists_containers_with_their_pods_and_whether_they_run(tmp_path: Path) -> None:
    fake, heard = Fake(tmp_path), Heard()
    fake.containers = {"app": record("app", INNER), "pod": record("pod", OUTER), "old": record("old", {})}
    fake.tasks = {"app": RUNNING, "pod": RUNNING, "old": STOPPED}
    async with following(fake, heard):
        listed = await heard.listing()
    assert {name: runs for name, (_, runs) in listed.items()} == {"app": True, "pod": True, "old": False}
    pod: Any = {"pod": "0a1b", "namespace": "shop", "name": "web-7d4b9c6f5-x2x9k", "image": "hub.example/web:1"}
    pod |= {"workload": "jobs", "kind": "batch"}
    assert listed["app"][0] == Identity("app", container_name="app", sandbox=False, **pod)
    assert listed["pod"][0] == Identity("pod", sandbox=True, **pod)
    assert listed["old"][0] == Identity("old", image="hub.example/web:1", workload="hub.example/web")
    assert fake.asked[0].startswith('topic~="^(/containers/create|')


async def test_a_life_is_reported_with_its_name_and_time_and_ends_of_execs_are_not(tmp_path: Path) -> None:
    fake, heard = Fake(tmp_path), Heard()
    async with following(fake, heard):
        await heard.listing()
    fake.containers = {"app": record("app", INNER)}
    fake.envelopes = [
        envelope("/containers/create", "app"),
        envelope("/tasks/create", "app"),
        envelope("/tasks/start", "app"),
        envelope("/tasks/exit", "app", process="an-exec"),
        envelope("/snapshot/prepare", "app"),
        envelope("/tasks/exit", "app", process="app"),
        envelope("/tasks/delete", "app"),
        envelope("/containers/delete", "app"),
    ]
    async with following(fake, heard):
        observations = await heard.events(6)
    assert [each.event for each in observations] == ["created", "created", "started", "exited", "exited", "deleted"]
    assert {each.identity.workload for each in observations} == {"shop/web"}
    assert {each.boottime_us for each in observations} == {(UP + grid.SECOND // 2) // 1000}


async def test_what_happens_while_a_name_is_asked_for_waits_for_it_and_others_do_not(tmp_path: Path) -> None:
    fake, heard = Fake(tmp_path), Heard()
    fake.naming.clear()
    fake.envelopes = [
        envelope("/containers/create", "app"),
        envelope("/tasks/start", "app"),
        envelope("/containers/create", "other", namespace="moby"),
    ]
    async with following(fake, heard):
        assert [each.identity for each in await heard.events(1)] == [Identity("other")]
        fake.containers = {"app": record("app", INNER)}
        fake.naming.set()
        observations = await heard.events(2)
    assert [(each.event, each.identity.container_name) for each in observations] == [
        ("created", "app"),
        ("started", "app"),
    ]


async def test_a_container_that_nobody_can_name_is_reported_by_its_id(tmp_path: Path) -> None:
    fake, heard = Fake(tmp_path), Heard()
    fake.envelopes = [envelope("/containers/create", "gone"), envelope("/containers/delete", "gone")]
    async with following(fake, heard):
        observations = await heard.events(2)
    assert [(each.event, each.identity) for each in observations] == [
        ("created", Identity("gone")),
        ("deleted", Identity("gone")),
    ]


async def test_events_that_cannot_be_read_are_counted_logged_once_and_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fake, heard = Fake(tmp_path), Heard()
    before = DAMAGED.labels("containerd")._value.get()
    fake.envelopes = [b"\xff", envelope("/tasks/start", ""), b"\x0a\x7f", envelope("/tasks/exit", "app")]
    async with following(fake, heard):
        assert [observation.event for observation in await heard.events(1)] == ["exited"]
    assert DAMAGED.labels("containerd")._value.get() - before == 3
    assert [record.message for record in caplog.records if record.name.startswith("producers")] == [
        "containers.damaged"
    ]
