"""What the Kubernetes API sends to the watch and to the sink, and pod files as users write them for `explain`."""

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kube import answer, node, pod
from schemas import codec
from sinks.kubernetes import node as written
from sinks.kubernetes.external import selector
from spazio.command import explain
from tests.fuzz.session import Run, Target
from tests.fuzz.targets import choice
from tests.support.extender.placement import asked

_SAMPLES = Path(__file__).parents[2] / "unit" / "kubernetes"
_DEPLOYMENT = """
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  template:
    metadata: {labels: {app: web}, annotations: {spazio.strategy: "availability=2+weighted"}}
    spec:
      priority: 5
      overhead: {cpu: 10m}
      initContainers: [{name: i, restartPolicy: Always, resources: {requests: {cpu: 1}}}]
      containers: [{name: c, resources: {requests: {cpu: 100m, memory: 1Gi}, limits: {cpu: "1"}}}]
"""
_CRON = """
kind: CronJob
metadata: {name: c}
spec: {jobTemplate: {spec: {template: {spec: {containers: [{name: c}]}}}}}
---
kind: Service
"""
_TOKENS = (
    b"spec:",
    b"metadata: []",
    b"template: 3",
    b"jobTemplate: []",
    b"&a",
    b"*a",
    b"---\n",
    b"? ",
    b"kind: CronJob",
)


def kube() -> Target:
    """Return the target of the watch and of the sink."""

    def facts(make: Callable[..., Any], **more: Any) -> Callable[[bytes], None]:
        def read(data: bytes) -> None:
            thing = json.loads(data)
            if not isinstance(thing, dict):
                raise ValueError("no object")  # noqa: TRY004 # as the watch refuses it
            codec.encode(make(thing, at_us=1, **more))

        return read

    readers: dict[str, Callable[[bytes], object]] = {
        "node": facts(node.facts, price_label="spazio.io/price"),
        "pod": facts(pod.facts),
        "trouble": lambda data: answer.trouble(409, data, {"Retry-After": "1"}, "watch", "pods"),
        "selector": lambda data: selector.matcher(data.decode())({"kind": "Deployment", "workload": "web"}),
        "strategy": lambda data: written.strategy(data.decode()),
    }
    status = {"kind": "Status", "message": "x", "reason": "Conflict", "code": 409, "details": {"retryAfterSeconds": 1}}
    good = {
        "node": [(_SAMPLES / "node.json").read_bytes()],
        "pod": [(_SAMPLES / "pod.json").read_bytes()],
        "trouble": [json.dumps(status).encode()],
        "selector": [b"kind=Deployment,workload in (web, api),a.b/c!=d,!e", b"a,b notin (c)"],
        "strategy": [b"formula=mixed,cpu=0.5,memory=1"],
    }
    # The watch refuses an object by any of these, and the stream by RecursionError.
    refuses = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
    return Target("kube", choice.seeds(readers, good), choice.opened(readers), refuses)


def pod_file() -> Target:
    """Return the target of `explain POD.yaml`."""

    @contextmanager
    def opened() -> Iterator[Run]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "pod.yaml"

            def once(data: bytes) -> None:
                path.write_bytes(data)
                explain.read(path)

            yield once

    whole = {"kind": "Pod", **asked("p", workload="w", owner="ReplicaSet")}
    seeds = [_DEPLOYMENT.encode(), _CRON.encode(), json.dumps(whole).encode()]
    return Target("pod", seeds, opened, (ValueError, OSError), _TOKENS)
