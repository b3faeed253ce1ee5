"""The section of the Kubernetes sink."""

from typing import Annotated

from pydantic import AfterValidator, Field

from schemas.sections.section import Fraction, OptionalLocation, Port, Seconds, Section


def pairs(text: str) -> list[tuple[str, str]]:
    """Return the keys and values of `key=value,key=value`; empty: none.

    Raises:
        ValueError: A part has no key or no equals sign.
    """
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    result = [(key.strip(), value.strip()) for key, _, value in (part.partition("=") for part in parts)]
    if any("=" not in part for part in parts) or any(not key for key, _ in result):
        raise ValueError("is key=value, or several joined by commas, as spazio.mid=true")
    return result


def _pairs(text: str) -> str:
    pairs(text)
    return text


def _lease(text: str) -> str:
    namespace, _, name = text.partition("/")
    if not (namespace and name) or "/" in name:
        raise ValueError("is namespace/name, as spazio/spazio-full")
    return text


class Output(Section):
    """What the Kubernetes sink writes."""

    mid: bool = Field(
        False,
        description="Write reclaimable resources as extended resources of the nodes that `output.mid_nodes` names, "
        "which pods of lower tiers can request. Off by default: only `spazio govern`, which is another opt-in, slows "
        "such pods down when production needs what was lent.",
    )
    mid_nodes: Annotated[str, AfterValidator(_pairs)] = Field(
        "spazio.mid=true",
        description="Labels or annotations, as key=value joined by commas, all of which a node has that lends. By "
        "default each node opts in. Empty, as an option or in the file, since an empty variable counts as not set: all "
        "nodes lend.",
    )
    mid_cpu: str = Field(
        "kubernetes.io/mid-cpu",
        min_length=1,
        description="Extended resource for CPU, in millicores. The default name is Koordinator's.",
    )
    mid_memory: str = Field(
        "kubernetes.io/mid-memory",
        min_length=1,
        description="Extended resource for memory, in bytes. The default name is Koordinator's.",
    )
    diff: Fraction = Field(
        0.1,
        description="Relative change above which an amount is written at once; smaller ones wait for "
        "`output.force_seconds`. The default is Koordinator's and bounds the load on the API server.",
    )
    force_seconds: Seconds = Field(
        300, description="Seconds after which any change is written. The default is Koordinator's."
    )
    writes_per_second: float = Field(
        200,
        gt=0,
        le=10_000,
        description="Writes to the API server per second, at most. The sink writes as fast as it takes to finish "
        "within 0.8 of `output.force_seconds`, at least 20 a second, and halves its rate while the server is "
        "overloaded. The default suffices for 24,000 nodes with Mid resources and NodeMetrics.",
    )
    stale_seconds: Seconds = Field(
        900,
        description="Age, in seconds, from which a prediction counts as absent, and its extended resources become 0. "
        "The default is Koordinator's.",
    )
    metrics: bool = Field(
        True, description="Write one NodeMetric object for each node. It needs the CRD in deploy/kubernetes."
    )
    floor: bool = Field(
        True,
        description="Raise minReplicas of annotated HorizontalPodAutoscalers to the forecast, so that pods are ready "
        "before a ramp.",
    )
    floor_annotation: str = Field(
        "spazio.floor",
        min_length=1,
        description="Annotation by which a HorizontalPodAutoscaler opts in; its value must be true. The sink's own "
        "annotations begin with it: name another one in deploy/kubernetes/admission.yaml, too.",
    )
    floor_seconds: Seconds = Field(
        300,
        description="Seconds for which the forecast must stay lower before a floor is lowered. The default is the "
        "autoscaler's own stabilization window for scaling down.",
    )
    forecast_seconds: Seconds = Field(
        120,
        description="Age, in seconds, from which a forecast counts as absent, and floors return to their old values. "
        "The default is eight forecasts of `forecast.seconds`.",
    )
    full: bool = Field(
        False,
        description="While pods wait that the extender refused for lack of room, taint the nodes that lack it with "
        "spazio.io/full:NoSchedule, so that an autoscaler, which sees requests and taints only, buys a node. Off by "
        "default: it needs deploy/kubernetes/optional/rbac-full.yaml, and cluster-autoscaler the flag "
        "--status-taint=spazio.io/full.",
    )
    full_share: Fraction = Field(
        1,
        description="Largest share of all nodes, 0 to 1, that may have the taint at a time. The default sets no limit: "
        "an autoscaler buys nothing as long as a single node without the taint seems to fit. Lower it where pods wait "
        "for some pools only, so that a fault in telemetry cannot close the others.",
    )
    full_seconds: Seconds = Field(
        10,
        description="Seconds for which a node must lack room before it gets the taint, and have room, or nothing may "
        "wait, before it loses it; the same for `output.keep`. The default outlasts the start of a pod, whose cost is "
        "uncertain.",
    )
    full_hold_seconds: Seconds = Field(
        600,
        description="Seconds after which all taints go for as long if no node was added meanwhile, as where the "
        "autoscaler has reached its limit. Smaller pods, which a tainted node may have room for, then get their turn. "
        "The default outlasts the start of a machine.",
    )
    full_lease: Annotated[str, AfterValidator(_lease)] = Field(
        "spazio/spazio-full",
        description="Namespace and name, joined by a slash, of the Lease whose holder alone writes Mid-tier resources, "
        "floors, taints and the annotations of `output.keep`. Once it has expired, another process takes over what a "
        "dead one left: it keeps it current, or removes it.",
    )
    full_lease_seconds: Seconds = Field(
        15,
        description="Seconds after which the Lease expires unless it is renewed. What a killed sink has written is "
        "taken over about 1.2 times as long after its death, if another process runs. The default is that of "
        "Kubernetes' own controllers.",
    )
    keep: bool = Field(
        False,
        description="Annotate nodes whose pods would not all fit on other nodes by measured room, so that "
        "cluster-autoscaler and Karpenter do not remove them. Off by default, as `output.full`; it needs the same "
        "rights.",
    )
    external: bool = Field(
        False,
        description="Serve forecasts of workloads as metrics of the API external.metrics.k8s.io, on which any "
        "HorizontalPodAutoscaler can scale. Off by default: it needs certificates, and an APIService as in "
        "deploy/kubernetes/examples/external.yaml.",
    )
    external_host: str = Field(
        "127.0.0.1",
        description="Address on which external metrics are served. The default is loopback; a pod needs 0.0.0.0. Only "
        "clients with a certificate of `output.external_tls_client_ca` are answered.",
    )
    external_port: Port = Field(8843, description="Port on which external metrics are served. 0: any free port.")
    external_tls_cert: OptionalLocation = Field(
        None,
        description="Certificate file (PEM) of the server of external metrics, for the name of its Service. Empty: "
        "`output.external` cannot be on.",
    )
    external_tls_key: OptionalLocation = Field(
        None, description="File (PEM) with the private key of `output.external_tls_cert`."
    )
    external_tls_client_ca: OptionalLocation = Field(
        None,
        description="File (PEM) of the authority that signs the API server's proxy client certificate "
        "(requestheader-client-ca-file). Empty: `output.external` cannot be on, since anyone who reaches the port "
        "could read the forecasts.",
    )
    look_seconds: Seconds = Field(
        15,
        description="Seconds between two checks of what to write. The default is the autoscaler's own period.",
    )
