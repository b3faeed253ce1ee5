"""`spazio explain POD.yaml`: what the extender would decide for a pod, and why, without a reservation.

A file may hold several documents: Pods, workloads with a template of one (Deployment, StatefulSet, DaemonSet, Job,
CronJob, ReplicaSet), and Lists of these; objects of other kinds are passed over.
It evaluates all nodes that the cluster watch knows, or else all that report; it names those that report and are not
in Kubernetes. It does not repeat the in-tree filters
of kube-scheduler (taints, selectors, affinity).
"""

import asyncio
import json
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bus import errors
from schemas import codec
from schemas.messages.placement import Decision, Ranked
from schemas.settings import Settings
from sinks.extender import decision, pod
from sinks.extender.candidate import Pod
from sinks.extender.evaluator import Evaluator, Verdict
from sinks.extender.feed.follow import Followed
from sinks.extender.state.cluster_state import FRESH, ClusterState
from spazio import count, document
from spazio.terminal import clean, latest

_LOAD_SECONDS = 10.0
_MOST_SHOWN = 20


def run(settings: Settings, path: Path, *, json_output: bool) -> int:
    """Print a ranking for each pod; return 0, 1 if a pod has no feasible node or there is no cluster state, else 2."""
    try:
        pods = read(path)
        verdicts, others = asyncio.run(_asked(settings, [each.pod for each in pods]))
    except latest.Unreachable as error:
        clean.complain(error)
        return error.status
    except (ValueError, OSError) as error:
        clean.complain(error)
        return 2
    placements = [_placement(settings, verdict) for verdict in verdicts]
    console = Console()
    for each, placement in zip(pods, placements, strict=True):
        if json_output:
            print(json.dumps(json.loads(codec.encode(placement))))  # in ASCII, since it may go to a terminal
        else:
            show(placement, console)
            if each.replicas > 1:
                console.print(f"This is the first of {each.replicas} replicas; each one leaves less room for the next.")
    if len(placements) > 1 and not json_output:
        console.print(f"{len(placements)} pods, each evaluated as if it came alone.")
    if others and not json_output:
        console.print(Text(clean.text(unranked(others))))
    return 0 if all(placement.feasible for placement in placements) else 1


def _placement(settings: Settings, verdict: Verdict) -> Decision:
    return decision.make(
        verdict,
        index=verdict.best() if verdict.strategies else None,
        mode=settings.extender.mode,
        note="",
        at_us=time.time_ns() // 1000,
        seconds=0.0,
    )


class Described(NamedTuple):
    """A pod that a file describes, and how many of it."""

    pod: Pod
    replicas: int


def read(path: Path) -> list[Described]:
    """Return the pods that a file describes, with the fields that the API server would fill in; `-`: standard input.

    Raises:
        ValueError: It describes no pod, or one of them is invalid; the message names each fault's document and line.
        OSError: It cannot be read.
    """
    try:
        documents = document.read_all(sys.stdin.read() if str(path) == "-" else path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is not YAML: {error}") from None
    pods, faults = list[Described](), list[str]()
    for number, (line, content) in enumerate(documents, 1):
        for item, thing in _objects(content):
            try:
                if read_pod := _pod(thing):
                    parsed = pod.parse(read_pod)
                    # The controller of a DaemonSet names the node in each pod, but not in the template.
                    pinned = parsed.pinned or thing.get("kind") == "DaemonSet"
                    pods.append(Described(replace(parsed, pinned=pinned), _replicas(thing)))
            except ValueError as error:
                faults.append(f"{path}: document {number}, line {line}{item}: {error}")
    if faults:
        raise ValueError("\n".join([*faults, "correct it there, or leave the document out"]))
    if not pods:
        raise ValueError(f"{path} has no Pod, and no workload with a pod template")
    return pods


def _objects(content: Any) -> Iterator[tuple[str, Any]]:
    """Yield the objects of a document, each with its place in a List; an empty document has none."""
    if (
        isinstance(content, dict)
        and str(content.get("kind")).endswith("List")
        and isinstance(content.get("items"), list)
    ):
        yield from ((f", item {index}", item) for index, item in enumerate(content["items"], 1))
    elif content is not None:
        yield "", content


def _replicas(thing: Mapping[str, Any]) -> int:
    """Return how many pods a workload asks for; 1 where it does not say."""
    spec = _mapping(thing, "spec")
    if thing.get("kind") == "CronJob":
        spec = _mapping(_mapping(spec, "jobTemplate"), "spec")
    wanted = spec.get("replicas", spec.get("parallelism"))
    return wanted if isinstance(wanted, int) else 1


def _pod(thing: Any) -> dict[str, Any] | None:
    """Return the pod of an object, or of the workload that makes it; None: it makes none.

    Raises:
        ValueError: It or a part of it is no mapping.
    """
    if not isinstance(thing, dict):
        raise ValueError(f"this has to be an object with kind, metadata and spec, and is {type(thing).__name__}")  # noqa: TRY004 # as for every invalid pod
    kind, metadata, spec = thing.get("kind"), _mapping(thing, "metadata"), _mapping(thing, "spec")
    inner: Mapping[str, Any] = {"metadata": metadata, "spec": spec}
    owners: list[dict[str, Any]] = []
    if kind != "Pod":
        if kind == "CronJob":
            spec = _mapping(_mapping(spec, "jobTemplate"), "spec")
        if spec.get("template") is None:
            return None
        inner = _mapping(spec, "template")
        owners = [{"kind": kind, "name": metadata.get("name") or "unnamed", "controller": True}]
    own = dict(_mapping(inner, "metadata"))
    own["namespace"] = own.get("namespace") or metadata.get("namespace") or "default"
    own["name"] = own.get("name") or metadata.get("name") or own.get("generateName") or "unnamed"
    own["uid"] = own.get("uid") or str(uuid.uuid4())
    own["ownerReferences"] = owners or own.get("ownerReferences")
    return {"metadata": own, "spec": dict(_mapping(inner, "spec")), "status": {}}


def _mapping(thing: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = thing.get(key)
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"{key} has to be a mapping, and is {type(value).__name__}: see `kubectl explain pod.{key}`")
    return value or {}


def unranked(names: Sequence[str]) -> str:
    """Return the sentence on nodes that report and are not in Kubernetes.

    >>> unranked(["vm"])
    '1 node reports, is not in Kubernetes and was not ranked: vm'
    """
    shown = ", ".join(names[:_MOST_SHOWN]) + (", ..." if len(names) > _MOST_SHOWN else "")
    verbs = ("reports", "is", "was") if len(names) == 1 else ("report", "are", "were")
    return "{} {}, {} not in Kubernetes and {} not ranked: {}".format(count.of(len(names), "node"), *verbs, shown)


async def _asked(settings: Settings, pods: Sequence[Pod]) -> tuple[list[Verdict], list[str]]:
    """Read the cluster state that the extender has, and evaluate each pod as if it came alone.

    Returns:
        The verdicts, and the nodes that report but are not evaluated, since Kubernetes does not have them.

    Raises:
        Unreachable: There is no cluster state.
    """
    cluster_state = ClusterState(settings)
    async with latest.dial(settings) as client:
        followed = Followed(client, settings, cluster_state)
        following = asyncio.create_task(followed.run())
        try:
            async with asyncio.timeout(_LOAD_SECONDS):
                await followed.ready.wait()
        except errors.REQUEST_FAILED:
            raise latest.Unreachable(
                f"{settings.nats_shown} has not all of spazio's streams: is a pipeline running?"
            ) from None
        finally:
            following.cancel()
            await asyncio.wait({following})
    names = cluster_state.nodes()
    if not names:
        raise latest.Unreachable(f"{settings.nats_shown} knows no node: it has neither reports nor facts")
    evaluator = Evaluator(settings.extender, cluster_state)
    now_us = time.time_ns() // 1000
    return [evaluator.evaluate(each, names, now_us) for each in pods], reporting_beside(cluster_state, names, now_us)


def reporting_beside(cluster_state: ClusterState, names: Sequence[str], now_us: int) -> list[str]:
    """Return the nodes beside the given ones that report now."""
    evaluated = {"", *names}
    others = {name: row for row, name in enumerate(cluster_state.rows.names) if name not in evaluated}
    states = cluster_state.states(np.fromiter(others.values(), np.intp), now_us)
    return sorted(name for name, state in zip(others, states.tolist(), strict=True) if state == FRESH)


def show(placement: Decision, console: Console) -> None:
    """Print a decision for people."""

    def say(text: str, style: str = "") -> None:
        console.print(Text(clean.text(text), style))

    weights = ", ".join(f"{name} {weight:g}" for name, weight in placement.strategies.items()) or "none"
    say("")
    say(f"pod {placement.namespace}/{placement.name}, class {placement.workload}; strategies: {weights}")
    if placement.note:
        say(f"note: {placement.note}", "yellow")
    say(f"{placement.feasible} of {count.of(placement.nodes, 'node')} would do")
    if placement.ranked:
        headings = ("node", "score", "room", "held", "telemetry", *placement.strategies)
        table = Table(*headings, box=None, pad_edge=False)
        for each in placement.ranked[:_MOST_SHOWN]:
            table.add_row(*(Text(clean.text(cell)) for cell in _cells(each, list(placement.strategies))))
        console.print(table)
        say("score: 0 to 100 of each strategy, weighted; room: more such pods that fit; held: reserved of it", "dim")
    for reason, number in placement.refused.items():
        say("")
        say(f"{count.of(number, 'node')}: {reason}")
    for refusal in placement.refusals:
        say(f"  {refusal.node}: {refusal.reason}")
        for need in refusal.needs:
            say(f"    {need}", "dim")


def _cells(each: Ranked, strategies: list[str]) -> list[str]:
    room = "?" if each.room is None else f"{each.room:.2f}"
    scores = [f"{each.scores.get(name, 0):.1f}" for name in strategies]
    return [each.node, f"{each.score:.1f}", room, f"{each.reserved:.2f}", each.state, *scores]
