"""Asks a child process whether it is healthy, and how much CPU time it has used."""

import asyncio
import os
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from bus.access import local

_GREETING = b"INFO "


async def page(address: str) -> bool:
    """Tell whether `/healthz` of a service is 200; the caller limits the time.

    The certificate is not verified: the service is a child at loopback, and the answer says no more than that it lives.
    """
    parts = urlsplit(address)
    context = unverified() if parts.scheme == "https" else None
    status = await _first_line(parts.hostname or "", parts.port or 0, b"GET /healthz HTTP/1.0\r\n\r\n", context)
    return status.split()[1:2] == [b"200"]


def unverified() -> ssl.SSLContext:
    """Return how to ask for a child's page without looking at its certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def nats(port: int, name: str = "") -> bool:
    """Tell whether a NATS server whose name has a part greets at a loopback port; the caller limits the time."""
    greeting = await _first_line("127.0.0.1", port, b"", None)
    return greeting.startswith(_GREETING) and name.encode() in greeting


async def _first_line(host: str, port: int, request: bytes, context: ssl.SSLContext | None) -> bytes:
    """Send a request and return the first line of the answer; empty: there is none."""
    writer = None
    try:
        reader, writer = await asyncio.open_connection(local.reachable(host), port, ssl=context)
        writer.write(request)
        return await reader.readline()
    except (OSError, ValueError):  # ValueError: a line without an end
        return b""
    finally:
        if writer is not None:
            writer.transport.abort()


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used; 0: it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
