"""What container runtimes say: configuration files, events and lists, HTTP and protobuf."""

import json
from collections.abc import Callable

from producers.containers import spec
from producers.containers.sources import containerd, docker
from producers.containers.wire import protobuf
from producers.containers.wire.response import Decoder, Lines
from tests.fuzz.session import Target
from tests.fuzz.targets import choice

_ID = "0a" * 32
_SPEC = {
    "annotations": {
        "io.kubernetes.cri.sandbox-uid": "u", "io.kubernetes.cri.sandbox-namespace": "s",
        "io.kubernetes.cri.sandbox-name": "n", "io.kubernetes.cri.container-name": "c",
        "io.kubernetes.cri.container-type": "container", "nerdctl/name": "web", "com.docker.compose.service": "web",
    },
    "linux": {"cgroupsPath": "kubepods-burstable-pod0a1b2c3d_0000_4000_8000_00000000000f.slice:cri-containerd:" + _ID},
}  # fmt: skip
_EVENT = {
    "Type": "container", "Action": "start", "timeNano": 1_700_000_000_000_000_000,
    "Actor": {"ID": _ID, "Attributes": {"name": "web", "image": "nginx:1", "spazio.class": "web"}},
}  # fmt: skip
_ROW = {"Id": _ID, "Names": ["/web"], "Image": "nginx:1", "State": "running", "Labels": {"spazio.kind": "batch"}}


def target() -> Target:
    """Return the target."""
    readers: dict[str, Callable[[bytes], object]] = {
        "spec": lambda content: spec.parse(_ID, content),
        "event": docker.parse_event,
        "row": lambda content: docker.parse_row(json.loads(content)),
        "response": _response,
        "protobuf": containerd.parse,
    }
    payload = protobuf.field(1, _ID)
    moment = protobuf.field(1, 1_700_000_000) + protobuf.field(2, 5)
    envelope = (
        protobuf.field(1, moment) + protobuf.field(2, "k8s.io") + protobuf.field(3, "/tasks/start")
        + protobuf.field(4, protobuf.field(2, payload))
    )  # fmt: skip
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    good = {
        "spec": [json.dumps(_SPEC).encode()],
        "event": [json.dumps(_EVENT).encode()],
        "row": [json.dumps(_ROW).encode()],
        "response": [head + b"5\r\nhello\r\n0\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{}\n{}"],
        "protobuf": [envelope],
    }
    # The sources catch these for each file, event and row.
    refuses = (ValueError, LookupError, TypeError, AttributeError, RecursionError, ConnectionResetError)
    return Target("containers", choice.seeds(readers, good), choice.opened(readers), refuses)


def _response(data: bytes) -> None:
    """A response says the same in whatever pieces it comes."""
    decoder, lines = Decoder(), Lines(1 << 16)
    whole = decoder.feed(data)
    lines.feed(whole)
    pieces, first = b"", Decoder()
    for position in range(0, len(data), 7):
        pieces += first.feed(data[position : position + 7])
    assert pieces == whole
