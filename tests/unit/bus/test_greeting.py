"""Why no NATS server answers at an address: in words of its own for each reason."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bus import server
from bus.access import greeting

_SECONDS = 0.1


@contextmanager
def listening(greets: bytes, answers: bytes = b"") -> Iterator[str]:
    """Listen for one client, which is greeted, and answered when it speaks; yields the address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            link, _ = listener.accept()
            with link:
                link.sendall(greets)
                while link.recv(100):
                    link.sendall(answers)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"nats://user:secret@127.0.0.1:{listener.getsockname()[1]}"
        thread.join(20)


def test_where_nothing_listens_on_this_machine_up_helps() -> None:
    fault = greeting.fault(f"nats://localhost:{server.free_port(0)}", _SECONDS)
    assert fault == "Connection refused: start one with `spazio up`"


def test_what_listens_elsewhere_is_not_started_by_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket, "create_connection", refuse)
    fault = greeting.fault("nats://192.0.2.1", _SECONDS)
    assert fault == "Connection refused: start it there, or name another with --nats"


def test_a_name_that_does_not_resolve_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    fault = greeting.fault("foo", _SECONDS)
    assert fault == "the name foo is not known, Name or service not known: name another with --nats"


@pytest.mark.parametrize(
    ("greets", "answers", "expected"),
    [
        (b'INFO {"version":"2.14.0"}\r\n', b"", ""),
        (b"SSH-2.0-OpenSSH_9.6\r\n", b"", "is not a NATS server; name another with --nats"),
        (b"", b"HTTP/1.1 400 Bad Request\r\n", "is not a NATS server; name another with --nats"),
        (b"", b"", "is silent: it hangs, or is not a NATS server; name another with --nats"),
    ],
    ids=["nats", "ssh", "http", "silent"],
)
def test_what_listens_is_named_by_what_it_says(greets: bytes, answers: bytes, expected: str) -> None:
    with listening(greets, answers) as url:
        fault = greeting.fault(url, _SECONDS)
    assert fault.endswith(expected)
    assert bool(fault) == bool(expected)
    assert "secret" not in fault
