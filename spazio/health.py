"""`python -m spazio.health [PATH]`: whether the service in this container is well, for its health check.

Images have no curl, and a check that is made again and again must be cheap: a bare socket starts in a third of the
time that a library for HTTP takes.
"""

import os
import socket
import sys
from collections.abc import Sequence

_SECONDS = 4.0  # /readyz gives the server one second to answer, /healthz the event loop three
_WHERE = ("127.0.0.1", 9470)


def main(arguments: Sequence[str]) -> int:
    """Ask for a page, /readyz unless told otherwise, print it, and return 0 if it says that all is well."""
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
