"""`python -m spazio.health [PATH]`: whether the service in this container is healthy, for its health check.

Images have no curl, and a repeated check must be cheap: a plain socket takes a third of the time of an HTTP library.
"""

import contextlib
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
        head, _, body = (_answer(port, path) or _answer(port, path, tls=True)).partition(b"\r\n\r\n")
    except OSError as error:
        print(f"nothing answers at port {port}: {error}")
        return 1
    print(body.decode(errors="replace").strip())
    return 0 if head.split(maxsplit=2)[1:2] == [b"200"] else 1


def _answer(port: int, path: str, *, tls: bool = False) -> bytes:
    """Return the answer; empty from a plain connection: the server speaks TLS (`http.config_file`)."""
    with contextlib.ExitStack() as stack:
        link = stack.enter_context(socket.create_connection((_WHERE[0], port), timeout=_SECONDS))
        if tls:
            import ssl

            # It is this container's own service, and its certificate names another host.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            link = stack.enter_context(context.wrap_socket(link))
        try:
            link.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            answer = stack.enter_context(link.makefile("rb")).read()
        except ConnectionError:
            if tls:
                raise
            return b""
    return answer if answer.startswith(b"HTTP/") else b""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
