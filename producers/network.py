"""Network throughput, from `/proc/net/dev`.

Only the node's own interfaces count. Loopback traffic never leaves the machine. Bridges, the host's ends of containers'
veth pairs, tunnels, VLANs and bonds forward packets that a physical interface also counts, so they would count
twice. Their names identify them, as container runtimes and network plugins choose them: the kernel's list contains
nothing else.

`/proc/net` shows the network namespace of the process that reads it, which for a container is its own. The source
therefore reads it through process 1 of the given `/proc`, which is the host's where the host's `/proc` is mounted.
"""

import logging
import os
import re
from functools import lru_cache
from pathlib import Path

from producers.source import NO_FACTS, Values, cached, rate

log = logging.getLogger(__name__)

_HANDED_ON = re.compile(
    rb"lo$|veth|docker|podman|cni|nerdctl|br-|br\d|virbr|vmbr|kube-|lxc|lxd|vnet|tap|tun|wg|ifb|dummy|bond|team"
    rb"|cali|flannel|cilium|weave|vxlan|genev|gre|ipip|sit|ip6|ipvl|macv|vxl|antrea|azv|eni[0-9a-f]{8}|ovs|vlan|nodelocaldns"
    rb"|cbr\d|azure\d|gke[0-9a-f]|incusbr|tailscale|zt[0-9a-z]{8}|.*\.\d+$"
    rb"|bridge\d|q(?:br|vb|vo)[0-9a-f]{8}|fw(?:br|pr|ln)\d"  # OpenStack's hybrid ports, and Proxmox' firewall
    rb"|ovn|[0-9a-f]{15}$|[0-9a-f]{12}_h$"  # the last two: ends of containers in OVN-Kubernetes and Kube-OVN
)


def parse(content: bytes) -> dict[bytes, int]:
    """Return the bytes that each counted interface received and sent since it came up.

    Raises:
        ValueError: A line is malformed, or a field is not a number.
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


@lru_cache(maxsize=4096)  # more than a node's interfaces; names recur ten times a second
def counts(name: bytes) -> bool:
    """Return whether an interface of this name carries traffic that no other interface counts.

    >>> counts(b"  eth0"), counts(b" veth1a2b3c4")
    (True, False)
    """
    return not _HANDED_ON.match(name.lstrip())


class Network:
    """Bytes per second that the node receives and sends."""

    name = "network"
    metrics = ("net_bytes",)
    optional = False
    facts = NO_FACTS

    def __init__(self, proc: Path) -> None:
        self.path = proc / "1/net/dev"
        if not os.access(self.path, os.R_OK):
            self.path = proc / "net/dev"
            log.warning("source.fallback", extra={"source": self.name, "reason": "no access to process 1's network"})
        self._parse = cached(parse)
        self._before: dict[bytes, int] | None = None
        self._at = 0.0

    def measure(self, content: bytes, now: float) -> Values:
        """Compare with the previous reading; None for the first one, and for the first one of each new interface."""
        traffic = self._parse(content)
        before, elapsed = self._before, now - self._at
        self._before, self._at = traffic, now
        return (None if not before else flow(before, traffic, elapsed),)


def flow(before: dict[bytes, int], after: dict[bytes, int], elapsed: float) -> float | None:
    """Return bytes per second over the interfaces of both readings.

    None if there is no such interface, or if the counter of any interface decreased.
    """
    both = before.keys() & after.keys()
    total = 0.0
    for name in both:
        growth = rate(before[name], after[name], elapsed)
        if growth is None:
            return None
        total += growth
    return total if both else None
