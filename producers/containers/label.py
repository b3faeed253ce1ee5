"""Identity and workload class of a container, by its labels (or annotations).

The kubelet uses the same labels with every runtime; Docker Compose has its own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from producers.containers.sources.source import Identity
from schemas.workload import CLASS, Kind, kind, owner

_LONGEST = 512
_MOST_PODS = 4096  # more than a node runs
_POD_UID, _NAMESPACE, _POD_NAME = "io.kubernetes.pod.uid", "io.kubernetes.pod.namespace", "io.kubernetes.pod.name"
_CONTAINER_NAME = "io.kubernetes.container.name"
_KINDS = ("io.cri-containerd.kind", "io.kubernetes.docker.type")  # of containerd, of dockershim and cri-dockerd
_SANDBOX_KINDS = ("sandbox", "podsandbox")
_SANDBOX_NAME = "POD"
_PROJECT, _SERVICE = "com.docker.compose.project", "com.docker.compose.service"

# Identity of a listed container, its labels, and whether it runs.
Row = tuple[Identity, Mapping[str, object], bool]


class Classes:
    """Classes and kinds that pods name in their own labels, which runtimes give to the sandbox and to no container."""

    def __init__(self) -> None:
        self._by_pod: dict[str, tuple[str | None, Kind | None]] = {}

    def apply(self, identity: Identity, labels: Mapping[str, object]) -> Identity:
        """Learn class and kind of a pod from its sandbox, or return a container with those of its pod."""
        if identity.pod is None:
            return identity
        chosen = text(labels.get(CLASS))
        if identity.sandbox and (chosen or identity.kind):
            self._by_pod.pop(identity.pod, None)
            self._by_pod[identity.pod] = chosen, identity.kind
            if len(self._by_pod) > _MOST_PODS:
                del self._by_pod[next(iter(self._by_pod))]
        if identity.pod not in self._by_pod:
            return identity
        workload, declared = self._by_pod[identity.pod]
        return replace(
            identity,
            workload=identity.workload if chosen else workload or identity.workload,
            kind=identity.kind or declared,
        )

    def listing(self, rows: Iterable[Row]) -> dict[str, tuple[Identity, bool]]:
        """Return all containers of a listing by their id, each with class and kind of its pod, wherever those stood."""
        applied = [(self.apply(identity, labels), labels, runs) for identity, labels, runs in rows]
        return {identity.container: (self.apply(identity, labels), runs) for identity, labels, runs in applied}


def identity(container: str, labels: Mapping[str, object], *, name: object = None, image: object = None) -> Identity:
    """Return the identity of a container.

    Args:
        container: The runtime's id.
        labels: Its labels; values that are not text are ignored.
        name: The runtime's name of it.
        image: Its image, as requested.
    """
    pod, role = text(labels.get(_POD_UID)), next((labels[key] for key in _KINDS if key in labels), None)
    inner = text(labels.get(_CONTAINER_NAME))
    sandbox = None if pod is None else role in _SANDBOX_KINDS if role else inner == _SANDBOX_NAME
    namespace, pod_name = text(labels.get(_NAMESPACE)), text(labels.get(_POD_NAME))
    return Identity(
        container=container,
        container_name=None if sandbox else inner or text(name),
        image=text(image),
        sandbox=sandbox,
        pod=pod,
        namespace=namespace,
        name=pod_name,
        workload=workload(labels, namespace=namespace, pod_name=pod_name, image=text(image)),
        kind=kind(labels),
    )


def workload(
    labels: Mapping[str, object],
    *,
    namespace: str | None = None,
    pod_name: str | None = None,
    image: str | None = None,
) -> str | None:
    """Return the workload class: the label, else the pod's owner, else the Compose service, else the image.

    >>> workload({}, namespace="shop", pod_name="web-7d4b9c6f5-x2x9k"), workload({}, image="hub.example:5000/a/b:1.2")
    ('shop/web', 'hub.example:5000/a/b')
    """
    if chosen := text(labels.get(CLASS)):
        return chosen
    if namespace and pod_name:
        return text(f"{namespace}/{owner(pod_name)}")
    project, service = text(labels.get(_PROJECT)), text(labels.get(_SERVICE))
    if project and service:
        return text(f"{project}/{service}")
    return image_name(image) if image else None


def image_name(image: str) -> str | None:
    """Return an image's name without tag and digest; None if it is only a digest.

    >>> image_name("busybox:1.36"), image_name("a/b@sha256:0f"), image_name("sha256:0f")
    ('busybox', 'a/b', None)
    """
    name = image.partition("@")[0]
    head, separator, last = name.rpartition("/")
    plain = head + separator + last.partition(":")[0]
    return None if plain == "sha256" or not plain else plain


def text(value: object) -> str | None:
    """Return an external value as valid text of limited length; None if it is not text, or empty."""
    if not isinstance(value, str):
        return None
    return value[:_LONGEST].encode(errors="replace").decode() or None
