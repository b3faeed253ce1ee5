"""The types of a client and of a message that it passes to a callback, for annotations outside the bus.

Where a parameter is a `Client`, any client of the library works; services use a `bus.connection.Connection`.
"""

from nats.aio.client import Client
from nats.aio.msg import Msg as Message

__all__ = ["Client", "Message"]
