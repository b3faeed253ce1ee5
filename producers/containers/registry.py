"""Who the containers and pods of this node are, for whoever meets only an id: a cgroup's directory has no other name.

Containers of one pod complete each other: a source may know the pod's name for its sandbox alone. Written by the
thread that follows containers, read from any.
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
        """Return who a container is, by its id, or a pod, by its UID; None: not known (any more).

        Of a pod only `pod`, `namespace`, `name`, `workload` and `kind` mean anything.
        """
        identity = self._containers.get(key)
        if identity is not None:
            return self.completed(identity)
        pod = self._pods.get(key)
        return pod.identity if pod is not None else None

    def put(self, identity: Identity) -> None:
        """Take in who a container is, in place of what was known of it."""
        self._containers[identity.container] = identity
        if identity.pod is None:
            return
        told = replace(identity, container_name=None, image=None, sandbox=None)
        pod = self._pods.get(identity.pod)
        if pod is None:
            pod = self._pods[identity.pod] = _Pod(told)
        pod.identity = pod.identity.joined(told)
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
        """Forget a container, and its pod with the last container of it."""
        identity = self._containers.pop(container, None)
        if identity is None or identity.pod is None:
            return
        pod = self._pods.get(identity.pod)
        if pod is not None:
            pod.containers.discard(container)
            if not pod.containers:
                del self._pods[identity.pod]
