"""The types of a client and of a message that it hands to a callback, for those who are handed one.

Any client of the library will do where only `Client` is asked for; services get a `bus.connection.Connection`.
"""

from nats.aio.client import Client
from nats.aio.msg import Msg as Message

__all__ = ["Client", "Message"]
