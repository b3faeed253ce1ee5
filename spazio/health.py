"""`python -m spazio.health [PATH]`: whether the service in this container is healthy, for its health check.

Images have no curl, and a repeated check must be cheap: a plain socket takes a third of the time of an HTTP library.
"""

import os
import socket
import sys
from collections.abc import Sequence

_SECONDS = 4.0  # /readyz gives the server one second to answer, /healthz the event loop three
_WHERE = ("127.0.0.1", 9470)


def main(arguments: Sequence[str]) -> int:
    """Request a page, by default /readyz, print it, and return 0 if its status is 200."""
    path = arguments[0] if arguments else "/readyz"
    port = int(os.environ.get("SPAZIO_HTTP_PORT") or _WHERE[1])
    try:
        with socket.create_connection((_WHERE[0], port), timeout=_SECONDS) as link, link.makefile("rb") as answer:
            link.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            head, _, body = answer.read().partition(b"\r\n\r\n")
    except OSError as error:
        print(f"nothing answers at port {port}: {error}")
        return 1
    print(body.decode(errors="replace").strip())
    return 0 if head.split(maxsplit=2)[1:2] == [b"200"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
