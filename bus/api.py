"""Requests to the JetStream API for which the client has no calls."""

import json
import logging
from typing import Any

import nats.errors
from nats.aio.client import Client

from bus.link import Connection

log = logging.getLogger(__name__)

# Error codes: the expected last sequence, of a subject or in a batch, is not the actual one.
WRONG_LAST_SEQUENCE = (10071, 10164)
# Text of the error of a stream that has reached its size and drops nothing.
FULL = "maximum bytes exceeded"


def allowed(client: Client, verb: str) -> bool:
    """Tell whether the user of a connection may send a request, as far as its credential says; log once if not.

    For requests that others send as well: only processors create streams, and the server drops unused consumers.
    """
    if not isinstance(client, Connection) or client.may_publish(f"$JS.API.{verb}"):
        return True
    name = ".".join(verb.split(".")[:2])
    if name not in client.left_out:
        client.left_out.add(name)
        log.info("request.left_out", extra={"request": verb, "reason": "this role leaves it to the processors"})
    return False


class Refused(nats.errors.Error):
    """The server refused a request.

    Attributes:
        code: The server's number for the reason.
    """

    def __init__(self, description: str, code: int) -> None:
        super().__init__(description)
        self.code = code


async def request(client: Client, verb: str, request: dict[str, Any], timeout_seconds: float) -> dict[str, Any]:
    """Send a request and return the answer.

    Raises:
        Refused: The answer is an error.
        nats.errors.Error: There is no answer; also TimeoutError.
    """
    reply = await client.request(f"$JS.API.{verb}", json.dumps(request).encode(), timeout=timeout_seconds)
    answer: dict[str, Any] = json.loads(reply.data)
    if "error" in answer:
        error = answer["error"]
        raise Refused(error.get("description", "no reason given"), error.get("err_code", 0))
    return answer


def nanoseconds(seconds: float) -> int:
    """Return a duration as the server takes it."""
    return round(seconds * 10**9)
