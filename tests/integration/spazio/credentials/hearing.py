"""A client that says what it hears."""

from bus import connection
from schemas.settings import Settings


async def hears(settings: Settings) -> str:
    """Return the name of the server, as a user sees it."""
    async with connection.connect(settings, "test") as client:
        return str(client.connected_server_version)
