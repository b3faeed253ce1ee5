"""A TLS handshake in memory: whose certificate a server shows, and whether it accepts a client's."""

import ssl
from pathlib import Path
from typing import Any


def shown(server: ssl.SSLContext, keys: Path, who: str | None = None) -> str:
    """Return the common name that a server shows a client of `make_keys`.

    Raises:
        ssl.SSLError: One of them does not accept the other.
    """
    client = ssl.create_default_context(cafile=str(keys / "ca.pem"))
    if who is not None:
        client.load_cert_chain(keys / f"{who}.pem", keys / f"{who}.key")
    certificate: dict[str, Any] = shake(server, client, "127.0.0.1").getpeercert() or {}
    return str(certificate["subject"][0][0][1])  # these have a common name alone


def shake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> ssl.SSLObject:
    """Shake hands in memory; returns the client's end.

    Args:
        server: Its context.
        client: The other's.
        name: Of the server, as the client knows it.

    Raises:
        ssl.SSLError: One side does not accept the other.
    """
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(down, up, server_hostname=name), server.wrap_bio(up, down, server_side=True)]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    for end in ends:
        end.do_handshake()
    return ends[0]


def damage(file: Path, how: str) -> None:
    """Damage a file as renewals do that go wrong: truncated, missing, or unreadable."""
    content = file.read_bytes()
    file.unlink()
    if how == "truncated":
        file.write_bytes(content[: len(content) // 2])
    elif how == "unreadable":
        file.mkdir()  # root may read every file


def repair(file: Path, content: bytes) -> None:
    """Put a file back, or one that is renewed."""
    if file.is_dir():
        file.rmdir()
    file.write_bytes(content)


DAMAGES = ("truncated", "missing", "unreadable")
