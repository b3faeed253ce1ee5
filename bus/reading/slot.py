"""Consumers of a role on the streams on which processors hold leases.

A lease is a consumer, and the server knows it by its name. Who may create consumers without a name may name one in the
request, and who may ask for the messages of any consumer takes those of a lease. So on these streams a role may
create, read and delete consumers of a few names only, its slots; its account has no way to others. A reader takes a
free one, and gives it back when it ends. What a reader leaves behind that was killed, the server deletes after a while.
"""

import random
import secrets
from typing import Any, TypeGuard

import nats.errors
from nats.aio.client import Client

from bus import api
from bus.link import Connection
from schemas import request

Config = dict[str, Any]

_TAKEN = (10013, 10105, 10148)  # the name is in use, for another consumer


class Full(nats.errors.Error):
    """All slots of the role are taken."""


def needed(client: Client, stream: str) -> TypeGuard[Connection]:
    """Tell whether the user of a connection has slots on a stream, and may not create consumers without a name."""
    if not isinstance(client, Connection) or client.may_publish(f"{request.API}CONSUMER.CREATE.{stream}"):
        return False
    return client.may_publish(f"{request.API}CONSUMER.CREATE.{stream}.{request.slots(client.role)[0]}")


async def create(
    client: Connection, stream: str, config: Config, timeout_seconds: float, *, unanswered: list[Config]
) -> dict[str, Any]:
    """Create a consumer under a free name of the role, and return the server's answer.

    Args:
        client: Connection.
        stream: Stream to read.
        config: Its configuration, without a name.
        timeout_seconds: Time limit for each request to the server.
        unanswered: What the reader has last asked for without an answer; changed in place. A busy server may have
            created it, so it is asked for first: otherwise each attempt would take one more name.

    Raises:
        Full: No name is free.
        nats.errors.Error: The consumer was not created; also TimeoutError.
    """
    names = list(request.slots(client.role))
    random.shuffle(names)  # readers that start together seldom try the same
    # The server takes the creation of what is there for done if nothing differs, so something does between readers.
    attempts = [config | {"name": name, "metadata": {"reader": secrets.token_hex(8)}} for name in names]
    for own in [*(asked for asked in unanswered if asked == asked | config), *attempts]:
        unanswered[:] = [own]
        body = {"stream_name": stream, "action": "create", "config": own}
        try:
            answer = await api.request(client, f"CONSUMER.CREATE.{stream}.{own['name']}", body, timeout_seconds)
        except api.Refused as refused:
            unanswered.clear()
            if refused.code not in _TAKEN:
                raise
        else:
            unanswered.clear()
            return answer
    raise Full(
        f"{len(names)} readers of the role {client.role} read stream {stream}, or did within five minutes: wait, or "
        "stop some"
    )
