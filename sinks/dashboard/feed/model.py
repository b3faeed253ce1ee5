"""The newest global model on the bus, for the page that shows what was learned."""

from typing import Any

from bus import stream
from bus.client import Client
from schemas import codec
from schemas.messages.estimate import Model
from schemas.settings import Settings
from schemas.subject import Names


async def read(client: Client, settings: Settings) -> dict[str, Any]:
    """Return `{"model": …}` as JSON values; null: nothing was published yet.

    Args:
        client: Connection.
        settings: All settings.

    Raises:
        NotFound: There is no stream yet.
        BusError: It may not be read; also TimeoutError.
        schemas.codec.Refused: What is there is no model.
    """
    names = Names(settings.prefix)
    newest = await stream.newest(client, names.telemetry, names.model, settings.nats.request_timeout_seconds)
    if not newest.payload:
        return {"model": None}
    return {"model": codec.decode(Model, newest.payload).model_dump(exclude_none=True)}
