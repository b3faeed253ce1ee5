"""The right to write: a Lease object of the API server, which one process holds at a time.

The holder renews it. One that is killed does not, and another process takes over once the Lease has not changed for as
long as it lasts. Time is measured from when this process saw the last change, because the clocks of two machines
differ. A holder that cannot renew stops to write before any other may begin.

Source: Kubernetes, `client-go/tools/leaderelection`.
"""

import asyncio
import math
import secrets
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from kube import answer
from kube.api import Api

_GROUP = "coordination.k8s.io/v1"
_RENEW, _ASK = 1 / 3, 1 / 5  # of its duration: pause after a success, and while another process holds it


class Lease:
    """A Lease, and whether this process holds it."""

    def __init__(self, api: Api, name: str, seconds: float) -> None:
        """Describe it; nothing is sent before `hold`.

        Args:
            api: The API server.
            name: `namespace/name`.
            seconds: Time after which it expires unless it is renewed.
        """
        self._api, self._seconds = api, seconds
        self._namespace, _, self._name = name.partition("/")
        self._all = f"/apis/{_GROUP}/namespaces/{self._namespace}/leases"
        self._identity = f"{socket.gethostname()}-{secrets.token_hex(4)}"
        self._until = self._next = -math.inf
        self._seen: tuple[Any, ...] = ()
        self._seen_at = -math.inf

    @property
    def held(self) -> bool:
        """Whether this process may write at this moment."""
        return _now() < self._until

    async def hold(self) -> bool:
        """Acquire or renew the Lease when that is due; returns whether this process holds it.

        Raises:
            Trouble: The API server does not answer or refuses; a Lease that is held stays so until it expires.
        """
        if _now() < self._next:
            return self.held
        try:
            lease = await self._api.send("GET", f"{self._all}/{self._name}")
        except answer.Missing:
            lease = {}
        if not self._is_free(lease.get("spec") or {}):
            self._until, self._next = -math.inf, _now() + _ASK * self._seconds
            return False
        asked = _now()
        try:
            await self._write(lease, self._identity, math.ceil(self._seconds))
        except answer.Conflict:  # another process was faster
            self._until = -math.inf
            return False
        self._until, self._next = asked + self._seconds, asked + _RENEW * self._seconds
        return True

    async def release(self) -> None:
        """Give the Lease up, so that the next process need not wait.

        Raises:
            Trouble: As `Api.send`; the Lease then expires.
        """
        if not self.held:
            return
        self._until = -math.inf
        lease = await self._api.send("GET", f"{self._all}/{self._name}")
        if lease["spec"].get("holderIdentity") == self._identity:
            await self._write(lease, "", 1)

    def _is_free(self, spec: Mapping[str, Any]) -> bool:
        """Tell whether no other sink holds it."""
        holder = spec.get("holderIdentity") or ""
        if holder in ("", self._identity):
            return True
        seen = holder, spec.get("renewTime"), spec.get("leaseTransitions")
        if seen != self._seen:
            self._seen, self._seen_at = seen, _now()
        return _now() - self._seen_at >= float(spec.get("leaseDurationSeconds") or self._seconds)

    async def _write(self, lease: Mapping[str, Any], holder: str, seconds: int) -> None:
        """Create the Lease, or replace the version that was read."""
        before = lease.get("spec") or {}
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        changed = before.get("holderIdentity") != holder
        spec = {
            "holderIdentity": holder,
            "leaseDurationSeconds": seconds,
            "renewTime": now,
            "acquireTime": now if changed or not before.get("acquireTime") else before["acquireTime"],
            "leaseTransitions": int(before.get("leaseTransitions") or 0) + changed,
        }
        metadata = {"name": self._name, "namespace": self._namespace}
        thing: dict[str, Any] = {"apiVersion": _GROUP, "kind": "Lease", "metadata": metadata, "spec": spec}
        if lease:
            metadata["resourceVersion"] = lease["metadata"]["resourceVersion"]
            await self._api.send("PUT", f"{self._all}/{self._name}", thing)
        else:
            await self._api.send("POST", self._all, thing)


def _now() -> float:
    return asyncio.get_running_loop().time()
