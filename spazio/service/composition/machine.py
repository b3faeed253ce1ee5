"""The services that `spazio up` runs on one machine: one row each, from which ports, order of ending and checks follow.

The same services are in the compose stack, in the manifests and in the chart.
"""

from typing import NamedTuple


class Service(NamedTuple):
    """A service.

    Attributes:
        name: Its name, which is also that of its role on the bus.
        arguments: Its command line.
        nice: Niceness. Rows of the history can be written later; availability must be fresh.
        simulates: It runs only beside simulated nodes.
    """

    name: str
    arguments: tuple[str, ...]
    nice: int = 0
    simulates: bool = False

    @property
    def is_sink(self) -> bool:
        """Whether it reads what others publish, so that it ends after them."""
        return self.arguments[0] == "sink"


# In the order of the ports of their pages, from `http.port` on; replicas of processors follow. A new one comes last.
SERVICES: tuple[Service, ...] = (
    Service("metrics", ("sink", "metrics")),
    Service("agent", ("agent",)),
    Service("process", ("process",)),
    Service("cache", ("sink", "cache")),
    Service("history", ("sink", "history"), nice=5),
    Service("extender", ("sink", "extender")),
    Service("dashboard", ("sink", "dashboard")),
    Service("load", ("load",), simulates=True),
)
# Those that always run.
NAMES = tuple(service.name for service in SERVICES if not service.simulates)
SINKS = tuple(service.name for service in SERVICES if service.is_sink)
PRODUCERS = tuple(service.name for service in SERVICES if not service.is_sink and service.name != "process")


def port_offset(name: str, replica: int = 1) -> int:
    """Return how far the port of a service's pages is from `http.port`; only processors have replicas above 1.

    >>> port_offset("metrics"), port_offset("process"), port_offset("process", replica=2) == len(SERVICES)
    (0, 2, True)
    """
    if replica > 1:
        return len(SERVICES) + replica - 2
    return [service.name for service in SERVICES].index(name)
