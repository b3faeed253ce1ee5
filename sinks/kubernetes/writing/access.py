"""What a part that writes to nodes or autoscalers works with."""

from collections.abc import Callable
from dataclasses import dataclass

from kube.api import Api
from schemas.sections.output import Output
from sinks.kubernetes.latest import Latest
from sinks.kubernetes.node import Node
from sinks.kubernetes.objects import Objects
from sinks.kubernetes.writing.holder import Holder


@dataclass(frozen=True)
class Access:
    """The nodes, what is to be written, and the right to write it.

    Attributes:
        api: The API server.
        nodes: The nodes.
        latest: The newest messages.
        output: Settings.
        lease: The right to write.
        clock: Seconds since the epoch.
    """

    api: Api
    nodes: Objects[Node]
    latest: Latest
    output: Output
    lease: Holder
    clock: Callable[[], float]
