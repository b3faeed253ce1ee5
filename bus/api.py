"""Requests to the JetStream API for which the client has no calls."""

import json
from typing import Any

import nats.errors
from nats.aio.client import Client

# Error codes: the expected last sequence, of a subject or in a batch, is not the actual one.
WRONG_LAST_SEQUENCE = (10071, 10164)


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
