"""What a NATS server says first to each client, before it knows the user: that it is one, and its version."""

import contextlib
import json
import socket
from urllib.parse import urlsplit

from bus.access.local import is_loopback

_LONGEST = 1 << 16
_QUESTION = b"PING\r\n\r\n"  # a program that waits for its client to begin, as one of HTTP, answers that


def place(url: str) -> tuple[str, int]:
    """Return host and port of an address.

    >>> place("nats://user:secret@[::1]"), place("n1:4223")
    (('::1', 4222), ('n1', 4223))
    """
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    return parts.hostname or "127.0.0.1", parts.port or 4222


def read(url: str, seconds: float) -> tuple[str, str]:
    """Return the host and port (without any password) and the version of the NATS server there.

    Args:
        url: Its address.
        seconds: Time limit of connecting, and of each answer.

    Raises:
        OSError: Nothing listens there.
        ValueError: The listening program is not a NATS server, or hangs.
    """
    host, port = place(url)
    with socket.create_connection((host, port), timeout=seconds) as link:
        try:
            line = _line(link)
        except TimeoutError:
            line = _answer(link)
    if not line:
        silent = f"the program at {host}:{port} accepts connections and is silent"
        raise ValueError(f"{silent}: it hangs, or is not a NATS server")
    verb, _, body = line.partition(b" ")
    with contextlib.suppress(ValueError, LookupError, TypeError):
        if verb == b"INFO":
            return f"{host}:{port}", str(json.loads(body)["version"])
    raise ValueError(f"the program at {host}:{port} is not a NATS server")


def fault(url: str, seconds: float) -> str:
    """Return why no NATS server answers at an address, and what to do; empty: one does. For `seconds` see `read`."""
    host, _ = place(url)
    try:
        read(url, seconds)
    except socket.gaierror as error:
        return f"the name {host} is not known, {error.strerror}: name another with --nats"
    except OSError as error:
        remedy = "start one with `spazio up`" if is_loopback(host) else "start it there, or name another with --nats"
        return f"{error.strerror or error}: {remedy}"
    except ValueError as error:
        return f"{error}; name another with --nats"
    return ""


def _line(link: socket.socket) -> bytes:
    with link.makefile("rb") as lines:
        return lines.readline(_LONGEST)


def _answer(link: socket.socket) -> bytes:
    """Return the first line that a silent program answers; empty: it stays silent."""
    try:
        link.sendall(_QUESTION)
        return _line(link)
    except TimeoutError:
        return b""
