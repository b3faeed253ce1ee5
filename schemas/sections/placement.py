"""The section of the scheduler extender."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from schemas.messages.placement import MOST_EVIDENCE, Mode
from schemas.sections import ranking
from schemas.sections.section import Commas, Fraction, OptionalLocation, Port, Seconds, Section


def _strategies(value: str) -> str:
    ranking.terms(value)
    return value


def _profiles(value: tuple[str, ...]) -> tuple[str, ...]:
    for entry in value:
        name, separator, rest = entry.partition(":")
        if not (separator and name):
            raise ValueError(f"{entry!r} is not schedulerName:strategies")
        ranking.terms(rest)
    return value


def _factors(value: tuple[str, ...]) -> tuple[str, ...]:
    ranking.factors(ranking.pairs(value))
    return value


def _resources(value: tuple[str, ...]) -> tuple[str, ...]:
    weighted = tuple(entry if "=" in entry else f"{entry}=1" for entry in value)
    ranking.resources(ranking.pairs(weighted))
    return weighted


def _shape(value: tuple[str, ...]) -> tuple[str, ...]:
    ranking.shape(value)
    return value


class Extender(Section):
    """The scheduler extender: an HTTP service that kube-scheduler asks where pods may go."""

    host: str = Field(
        "127.0.0.1",
        description="Address on which the extender listens. The default is loopback, since anyone who reaches the port "
        "can reserve capacity. Any other address needs `extender.tls_client_ca`, or `extender.allow_anonymous`.",
    )
    allow_anonymous: bool = Field(
        False,
        description="Answer clients without a certificate also where other machines reach the address. Off, since each "
        "of them could reserve capacity; turn it on where something else admits only the scheduler, such as a port "
        "that is published on loopback, or a NetworkPolicy.",
    )
    port: Port = Field(
        8800,
        description="Port on which the extender listens. 0: any free port. If the port is taken under `up`, the "
        "extender uses the next free one.",
    )
    tls_cert: OptionalLocation = Field(
        None, description="Certificate file (PEM) for HTTPS. Empty: the extender serves HTTP."
    )
    tls_key: OptionalLocation = Field(None, description="File (PEM) with the private key of `extender.tls_cert`.")
    tls_client_ca: OptionalLocation = Field(
        None,
        description="File (PEM) of the authority that signs client certificates; clients without one are refused. "
        "Empty: no client certificate is required.",
    )
    mode: Mode = Field(
        "argmax",
        description="How nodes are scored. argmax: the best node gets the whole score and a reservation, so nodes are "
        "never overcommitted. graded: scores from 0 to 10 beside the scheduler's own, without reservations, so pods "
        "that are placed at the same time may overcommit a node. shadow: all nodes pass without scores, and decisions "
        "say what would have been.",
    )
    promote: bool = Field(
        False,
        description="In mode shadow: place the pods of a namespace as in mode argmax while its promises hold, and "
        "leave them to the scheduler again once they do not. A promise is that a node with room for a pod stays within "
        "the policy. Off, since shadow mode changes nothing unless asked to.",
    )
    promote_risk: Fraction = Field(
        0.1,
        description="Share of broken promises up to which a namespace is promoted: once Wilson's interval at 95 % lies "
        "below it, and until the share itself is above. The default is what the bounds of room state.",
    )
    promote_promises: int = Field(
        100,
        ge=1,
        le=MOST_EVIDENCE,
        description="Promises of a namespace that must have settled before it is promoted. Of 100, with the "
        "default risk, at most 4 may be broken.",
    )
    strategies: Annotated[str, AfterValidator(_strategies)] = Field(
        "availability",
        description="Strategies that rank nodes: name or name=weight, joined by +. Names are availability, weighted, "
        "most_allocated, least_allocated, requested_to_capacity_ratio, target_load_packing and peak. Options in "
        "parentheses replace other settings, as in weighted(price=3;fit=1)=2. The default ranks by how many more such "
        "pods fit.",
    )
    profiles: Annotated[tuple[str, ...], Commas, AfterValidator(_profiles)] = Field(
        (),
        description="Strategies of single scheduler names, as schedulerName:strategies. Empty: `extender.strategies` "
        "for all.",
    )
    unknown: Literal["last", "reject"] = Field(
        "last",
        description="Treatment of nodes without recent telemetry. last: they rank behind all others, so pods still "
        "start when no other node fits; a node younger than `extender.stale_seconds` takes one pod until it reports. "
        "reject: they are refused.",
    )
    stale_seconds: Seconds = Field(
        300,
        description="Seconds for which a silent node keeps its last known capacity, less the pods that the Kubernetes "
        "API reports since. The default outlasts the restart of an agent or a server.",
    )
    failure: Literal["open", "closed"] = Field(
        "closed",
        description="Behaviour while NATS is unreachable and no reservation can be stored. closed: pods wait, and "
        "nothing is overcommitted. open: all nodes pass.",
    )
    release: Literal["report", "running"] = Field(
        "report",
        description="When a reservation ends. report: a report of the node includes the pod. running: the pod leaves "
        "the phase Pending, as in the dissertation; the pod's usage may then not be visible yet.",
    )
    settle_seconds: float = Field(
        2,
        ge=0,
        le=60,
        description="Seconds after a pod's start from which a report includes it. Smoothing and churn take this long.",
    )
    reservation_seconds: Seconds = Field(
        30,
        description="Seconds for which a reservation is held for a pod that is not bound. Raise it where volumes or "
        "gang scheduling delay binding. A gang of a class that has never run, with more pods than nodes, does not "
        "start: docs/placement.md says what to do.",
    )
    unconfirmed_seconds: Seconds = Field(
        10,
        description="Seconds for which a reservation is held for a pod that `spazio watch` has not reported, by "
        "the time of what it reports. The watch takes less than a second, so invented pods hold room no longer. Where "
        "no watch has run, `reservation_seconds` counts; while one is away, `stale_seconds`.",
    )
    unconfirmed_pods: int = Field(
        16,
        ge=1,
        le=10_000,
        description="Reservations on one node for pods that `spazio watch` has not reported, at most; 16 times as many "
        "in total. Further pods go to the next best node, or wait until the watch reports them. The default is more "
        "than a scheduler places on one node before the watch reports the pods.",
    )
    store_seconds: Seconds = Field(
        0.3,
        description="Time limit of NATS within one request, in seconds. It must be below httpTimeout in the "
        "scheduler's configuration, which is 0.5 s in deploy/kube-scheduler.yaml.",
    )
    bind: bool = Field(
        False,
        description="Serve the bind verb too. It needs a kubeconfig and the right to create pods/binding, so it is "
        "off.",
    )
    kick: bool | None = Field(
        None,
        description="Annotate a node when room appears for a rejected pod, so that the scheduler retries the pod at "
        "once. Empty: on where a kubeconfig is named and in a pod, since it needs the right to patch nodes.",
    )
    kick_seconds: Seconds = Field(
        2,
        description="Shortest time between two such annotations, in seconds. The default bounds the load on the API "
        "server.",
    )
    shortage_seconds: Seconds = Field(
        2,
        description="Seconds between two summaries of the pods that wait for room and of the nodes that lack it, while "
        "there are any (`spazio.shortage`). After five times as long without one, nothing counts as lacking. The "
        "default is that of `extender.kick_seconds`.",
    )
    body_bytes: int = Field(
        16 << 20,
        ge=1024,
        description="Largest request body, in bytes. A request with 5,000 complete node objects has 10 MB.",
    )
    resources: Annotated[tuple[str, ...], Commas, AfterValidator(_resources)] = Field(
        ("cpu=1", "memory=1"),
        description="Resources of the allocation strategies, resource=weight or resource. Default: kube-scheduler's.",
    )
    shape: Annotated[tuple[str, ...], Commas, AfterValidator(_shape)] = Field(
        ("0=0", "100=10"),
        description="Points utilization=score of requested_to_capacity_ratio: percent, and 0 to 10. The default "
        "prefers full nodes.",
    )
    target: float = Field(
        0.4,
        gt=0,
        lt=1,
        description="CPU utilization up to which target_load_packing fills nodes, 0 to 1. The default is Trimaran's.",
    )
    factors: Annotated[tuple[str, ...], Commas, AfterValidator(_factors)] = Field(
        ("fit=1", "disk=1", "network=1", "price=1", "stability=1", "priority=1"),
        description="Weights of the factors of the strategy `weighted`, as name=weight; 0 turns a factor off. The "
        "default weighs all equally.",
    )
    high_priority: int = Field(
        1000,
        description="Pod priority from which the strategy `weighted` treats a pod as critical and avoids spot nodes.",
    )
    minimum_availability: Fraction = Field(
        0,
        description="Share of nodes like a node, 0 to 1, that must survive a day for the strategy `weighted` to place "
        "pods there; spot nodes of unknown risk do not count as such. The annotation spazio.minimum-availability of a "
        "pod wins. The default admits all nodes.",
    )
    window_seconds: Seconds = Field(
        7 * 86_400,
        description="Seconds over which the strategy `weighted` takes the median price and counts interruptions; the "
        "history sink reads it. The default covers a week, as the history does.",
    )
    market_hours: float = Field(
        24,
        ge=0,
        le=1e6,
        description="Node-hours of a market (instance type, zone, spot or not) from which its median price and its "
        "interruption rate count. The default is one node for a day; a rate of fewer hours says little.",
    )
