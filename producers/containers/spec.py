"""Identity of a container by its runtime configuration (`config.json` of the OCI runtime specification).

Annotations of containerd's CRI plugin name the pod, nerdctl passes labels as annotations, and Docker writes only the
path of the cgroup.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from producers.containers import label
from producers.containers.sources.source import Identity
from producers.pods import cgroup

_CRI = "io.kubernetes.cri."
_LABELS: Mapping[str, str] = {  # annotations of containerd's CRI plugin, and the kubelet's labels for them
    _CRI + "sandbox-uid": "io.kubernetes.pod.uid",
    _CRI + "sandbox-namespace": "io.kubernetes.pod.namespace",
    _CRI + "sandbox-name": "io.kubernetes.pod.name",
    _CRI + "container-name": "io.kubernetes.container.name",
    _CRI + "container-type": "io.cri-containerd.kind",
}


def parse(container: str, content: bytes) -> Identity:
    """Return the identity of a container by its runtime configuration.

    Raises:
        ValueError: It is malformed; also LookupError, TypeError, AttributeError.
    """
    config: Any = json.loads(content)
    annotations = dict(config.get("annotations") or {})
    labels = annotations | {theirs: annotations[ours] for ours, theirs in _LABELS.items() if ours in annotations}
    group = (config.get("linux") or {}).get("cgroupsPath") or ""
    image, name = annotations.get(_CRI + "image-name"), annotations.get("nerdctl/name")
    identity = label.identity(container, labels, name=name, image=image)
    uids = [uid for part in re.split("[/:]", group) if (uid := cgroup.pod_uid(part))]
    return replace(identity, pod=uids[-1]) if uids and identity.pod is None else identity
