"""The message about markets of nodes: what they cost, and how often they took nodes away."""

from typing import Annotated, ClassVar

from pydantic import Field

from schemas.messages.base import Count, Message, MessagePart, Microseconds, NonNegative, Text

MAXIMUM_MARKETS = 2000


class Market(MessagePart):
    """Nodes of one instance type, zone and kind of capacity."""

    type: Annotated[Text | None, Field(description="instance type; absent: the nodes name none")] = None
    zone: Annotated[Text | None, Field(description="zone; absent: the nodes name none")] = None
    spot: Annotated[bool, Field(description="the provider may reclaim the nodes at short notice")]
    hours: Annotated[NonNegative, Field(description="hours of all its nodes within the window")]
    price: Annotated[NonNegative | None, Field(description="median price per hour; absent: no node had one")] = None
    interruptions: Annotated[Count, Field(description="nodes that the provider took away")]


class Markets(Message):
    """Past prices and interruptions of all markets, from the history of the cluster's nodes."""

    TITLE: ClassVar[str] = "What each market of nodes has cost, and how often it took nodes away"

    at_us: Annotated[Microseconds, Field(description="end of the window")]
    since_us: Annotated[Microseconds, Field(description="start of the window")]
    markets: Annotated[
        list[Market], Field(max_length=MAXIMUM_MARKETS, description="those with the most hours, if there are more")
    ]
