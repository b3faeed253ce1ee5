"""How much goes over the network, from `/proc/net/dev`.

Only the node's own interfaces count. Loopback never leaves the machine; bridges, the host's ends of containers'
pairs, tunnels, VLANs and bonds hand on a packet that a physical interface counts as well, and would count it twice.
They are told by the names that container runtimes and network plugins give them, since the kernel's list says no
more than the name.

`/proc/net` is the network of whoever reads it, which for a container is the container's own. The list is therefore
read through process 1 of the given `/proc`: the host's, where the host's `/proc` is mounted.
"""

import logging
import os
import re
from functools import lru_cache
from pathlib import Path

from producers.source import NO_FACTS, Values, rate, remembered

log = logging.getLogger(__name__)

_HANDED_ON = re.compile(
    rb"lo$|veth|docker|podman|cni|nerdctl|br-|br\d|virbr|vmbr|kube-|lxc|lxd|vnet|tap|tun|wg|ifb|dummy|bond|team"
    rb"|cali|flannel|cilium|weave|vxlan|genev|gre|ipip|sit|ip6|ipvl|macv|vxl|antrea|azv|eni[0-9a-f]{8}|ovs|vlan|nodelocaldns"
    rb"|.*\.\d+$"
)


def parse(content: bytes) -> dict[bytes, int]:
    """Return the bytes received and sent by each interface that counts, since it came up.

    Raises:
        ValueError: A line is none of this file, or a field is no number.
        LookupError: A line is too short.
    """
    _, heads, *lines = content.split(b"\n")
    if not heads.lstrip().startswith(b"face"):
        raise ValueError(f"/proc/net/dev has {heads[:16]!r} where its column heads should be")
    traffic = {}
    for line in lines[:-1]:
        colon = line.index(b":")
        if counts(line[:colon]):
            fields = line[colon + 1 :].split(None, 9)
            traffic[line[:colon].lstrip()] = int(fields[0]) + int(fields[8])
    return traffic


@lru_cache(maxsize=4096)  # more than a node has interfaces; names come again ten times a second
def counts(name: bytes) -> bool:
    """Say whether an interface of this name carries what no other one counts.

    >>> counts(b"  eth0"), counts(b" veth1a2b3c4")
    (True, False)
    """
    return not _HANDED_ON.match(name.lstrip())


class Network:
    """Bytes received and sent by the node."""

    name = "network"
    metrics = ("net_bytes",)
    optional = False
    facts = NO_FACTS

    def __init__(self, proc: Path) -> None:
        self.path = proc / "1/net/dev"
        if not os.access(self.path, os.R_OK):
            self.path = proc / "net/dev"
            log.warning("source.fallback", extra={"source": self.name, "reason": "no access to process 1's network"})
        self._parse = remembered(parse)
        self._before: dict[bytes, int] | None = None
        self._at = 0.0

    def measure(self, content: bytes, now: float) -> Values:
        """Compare with the reading before; the first knows nothing, nor does the first of a new interface."""
        traffic = self._parse(content)
        before, elapsed = self._before, now - self._at
        self._before, self._at = traffic, now
        return (None if not before else flow(before, traffic, elapsed),)


def flow(before: dict[bytes, int], after: dict[bytes, int], elapsed: float) -> float | None:
    """Return bytes per second over the interfaces of both readings.

    None where there is no such interface, or where the counter of any went backwards.
    """
    both = before.keys() & after.keys()
    total = 0.0
    for name in both:
        growth = rate(before[name], after[name], elapsed)
        if growth is None:
            return None
        total += growth
    return total if both else None
