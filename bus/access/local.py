"""Which names of a request are those of this machine.

A page that listens on loopback is for programs of this machine. A web page of a stranger could ask for it by a name
that resolves to 127.0.0.1, and read the answer as its own; the browser then sends that name in the header Host.
"""

import ipaddress
import socket
from urllib.parse import urlsplit


def is_loopback(address: str) -> bool:
    """Tell whether only programs of this machine (or container) reach an address; names other than localhost do not.

    >>> is_loopback("127.0.1.1"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("example.com")
    (True, True, False, False)
    """
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 # compared, not listened on


def is_everywhere(address: str | None) -> bool:
    """Tell whether an address means all addresses of its machine."""
    return address in _EVERYWHERE


def reachable(address: str) -> str:
    """Return an address of this machine for one that means all of them."""
    return _EVERYWHERE.get(address, address)


def url_host(address: str) -> str:
    """Return how a program of this machine writes an address in a URL.

    >>> url_host("0.0.0.0"), url_host("::"), url_host("fd00::1"), url_host("example.com")
    ('127.0.0.1', '[::1]', '[fd00::1]', 'example.com')
    """
    named = reachable(address)
    return f"[{named}]" if ":" in named else named


def host(authority: str) -> str:
    """Return the name or address of a header Host; empty: it has none.

    >>> host("localhost:8801"), host("[::1]:8801"), host("[")
    ('localhost', '::1', '')
    """
    try:
        return urlsplit(f"//{authority}").hostname or ""
    except ValueError:
        return ""


def names(authority: str | None) -> bool:
    """Tell whether a header Host names this machine, or is missing, as no browser leaves it.

    >>> names("localhost:8801"), names("[::1]:8801"), names(None), names("localhost.example.com"), names("[")
    (True, True, True, False, False)
    """
    if authority is None:
        return True
    name = host(authority)
    return is_loopback(name) or name == socket.gethostname().lower()
