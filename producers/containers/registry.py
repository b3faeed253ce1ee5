"""Identities of the node's containers and pods by id: the names of cgroup directories contain only ids.

Containers of one pod complete each other: a source may know the pod's name only for its sandbox. The thread that
follows containers writes the registry; any thread may read it.
"""

from dataclasses import dataclass, field, replace

from producers.containers.sources.source import Identity


@dataclass(slots=True)
class _Pod:
    identity: Identity
    containers: set[str] = field(default_factory=set)


class Registry:
    """Identities by container id and by pod UID."""

    def __init__(self) -> None:
        self._containers: dict[str, Identity] = {}
        self._pods: dict[str, _Pod] = {}

    def get(self, key: str) -> Identity | None:
        """Return the identity of a container, by its id, or of a pod, by its UID; None: unknown.

        Of a pod only `pod`, `namespace`, `name`, `workload` and `kind` mean anything.
        """
        identity = self._containers.get(key)
        if identity is not None:
            return self.completed(identity)
        pod = self._pods.get(key)
        return pod.identity if pod is not None else None

    def put(self, identity: Identity) -> None:
        """Store the identity of a container in place of its previous one."""
        self._containers[identity.container] = identity
        if identity.pod is None:
            return
        of_pod = replace(identity, container_name=None, image=None, sandbox=None)
        pod = self._pods.get(identity.pod)
        if pod is None:
            pod = self._pods[identity.pod] = _Pod(of_pod)
        pod.identity = pod.identity.joined(of_pod)
        pod.containers.add(identity.container)

    def completed(self, identity: Identity) -> Identity:
        """Return a container's identity with what others of its pod know of the pod."""
        pod = None if identity.pod is None else self._pods.get(identity.pod)
        if pod is None:
            return identity
        if identity.workload is None:
            return identity.joined(pod.identity)
        return identity if identity.kind or not pod.identity.kind else replace(identity, kind=pod.identity.kind)

    def drop(self, container: str) -> None:
        """Remove a container, and its pod with the pod's last container."""
        identity = self._containers.pop(container, None)
        if identity is None or identity.pod is None:
            return
        pod = self._pods.get(identity.pod)
        if pod is not None:
            pod.containers.discard(container)
            if not pod.containers:
                del self._pods[identity.pod]
