"""What a node sends that smooths and models itself: the last values each second, and its local model when it has moved.

The node folds its own blocks and events as a partition of one node does, with the same code, and sends what the centre
needs of the state after each: CARICO's federated form (dissertation, section 4.3), in which models travel and samples
do not. The node needs the global model now and then: where it has no evidence of its own, the idle baseline
under its local model rests on the cluster's mean cost of a pod, and without that on the reference pod. Availability is
made at the centre, from the last values, and does not rest on it.
"""

import hashlib
import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from processors import decode
from processors.decode import Block
from processors.estimation.state import RESOURCES, State
from processors.model import keyed_sum
from processors.partition.partition import Partition
from schemas import codec
from schemas.messages.base import VERSION
from schemas.messages.telemetry import EdgeBlock
from schemas.sections.estimation import FEATURES
from schemas.settings import Settings
from schemas.subject import Names, token

Array = NDArray[np.float64]

# Of a resource a digit more than samples have: cpu is the mean of two of them, and divided by the cost of a small pod.
_RESOURCE_DECIMALS = 5
_OTHER_DECIMALS = 3
_WAITING_DECIMALS = 3
_CORES_DECIMALS = 4
_MOMENT_DIGITS = 3
_CLOCK_US = 5000
_ALWAYS_DIGITS = 6

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class Edge:
    """One node, on that node."""

    def __init__(self, settings: Settings, node: str) -> None:
        """Start without any block."""
        smoothing = settings.smoothing.model_copy(update={"publish": False})
        self._settings = settings.model_copy(update={"smoothing": smoothing})
        self._node, names = node, Names(settings.prefix)
        self._subjects = {kind: names.part(0, kind, token(node)) for kind in ("samples", "containers", "edge")}
        self._model_subject = names.model
        self._partition, self._centre = Partition(self._settings, 0), Partition(self._settings, 0)
        self._size: dict[str, Any] = {}
        self._sized_seq, self._offset_us = 0, 0
        # These forms make availability of the signal, and rounding would show in a ratio of two estimates.
        self._always = settings.estimate_form.startswith("kalman")

    def event(self, payload: bytes) -> None:
        """Fold a `ContainerEvent`; ignore what is none."""
        events, _ = self._decode(self._subjects["containers"], payload)
        for partition in (self._partition, self._centre):
            partition.fold_decoded(events)

    def adopt(self, payload: bytes) -> None:
        """Take over the global `Model`.

        Raises:
            codec.Refused: It is not one.
        """
        models, refused = self._decode(self._model_subject, payload)
        if refused:
            raise codec.Refused(refused[0][1])
        for partition in (self._partition, self._centre):
            partition.fold_decoded(models)

    def block(self, payload: bytes) -> bytes | None:
        """Fold a `SampleBlock` and return the `EdgeBlock` in its place; None: it is not newer than the last.

        Raises:
            codec.Refused: It is not one, or has numbers out of range.
        """
        blocks, refused = self._decode(self._subjects["samples"], payload)
        if refused:
            raise codec.Refused(refused[0][1])
        before = self._partition.state(self._node)
        self._partition.fold_decoded(blocks)
        after = self._partition.state(self._node)
        if after is None or (before is not None and before.at_us[0] == after.at_us[0]):
            return None
        (block,) = (item for item in blocks if isinstance(item, Block))
        encoded = _encode(self._fields(block, after, before)).encode()
        self._centre.fold([(self._subjects["edge"], encoded)])
        return encoded

    def dump(self) -> bytes:
        """Return the state as bytes."""
        return self._partition.snapshot()

    def load(self, body: bytes) -> None:
        """Take over what `dump` returned.

        Raises:
            ValueError: It is damaged, of another node, of another version, or made under other settings.
        """
        both = Partition(self._settings, 0), Partition(self._settings, 0)
        for partition in both:
            partition.restore(body)
        if both[0].nodes > 1 or both[0].state(self._node) is None:
            raise ValueError(f"state is not of node {self._node}")
        self._partition, self._centre = both

    def _decode(self, subject: str, payload: bytes) -> tuple[list[decode.Item], list[tuple[int, str]]]:
        return decode.messages([(subject, payload)], self._model_subject)

    def _fields(self, block: Block, state: State, before: State | None) -> dict[str, Any]:
        """Return the fields of a block, without those at their defaults or as last sent."""
        head = block.message
        fields: dict[str, Any] = {"v": VERSION, "node": head.node, "boot": head.boot, "seq": head.seq}
        if head.step_us != EdgeBlock.model_fields["step_us"].default:
            fields["step_us"] = head.step_us
        fields["usage"] = _usage(dict(zip(self._partition.features, state.usage[0].tolist(), strict=True)))
        if (pods := _measured(block, "pods")).size:
            fields["pods"] = round(float(pods[-1]))
        if waiting := round(float(state.waiting[0]), _WAITING_DECIMALS):
            fields["waiting"] = waiting
        if not math.isnan(cores := float(state.running[0])):
            fields["cores"] = _short(round(cores, _CORES_DECIMALS))
        pressure = bool(_measured(block, "cpu_pressure").size)
        size = {"cpus": head.cpus, "memory_bytes": head.memory_bytes, "pressure": pressure}
        sized = size != self._size or head.seq - self._sized_seq >= self._settings.edge.model_seconds
        offset = head.at_us - head.seq * 1_000_000
        if sized or abs(offset - self._offset_us) > _CLOCK_US:
            fields["at_us"], self._offset_us = head.at_us, offset
        if sized:
            fields["size"], self._size, self._sized_seq = size, size, head.seq
        if sized or self._always or self._astray(before):
            fields["moment"] = self._triangle(state.moment[0])
        return fields

    def _astray(self, before: State | None) -> bool:
        """Return whether the centre's model was too far off after the second before.

        What no signal can show does not count: the floor under a signal's step is one pod of the most that fit.
        """
        theirs = self._centre.state(self._node)
        if before is None or theirs is None:
            return True
        ours = before.moment[0]
        size = max(float(np.linalg.norm(ours)), self._settings.estimate.max_pods**-2.0)
        return bool(np.linalg.norm(ours - theirs.moment[0]) > self._settings.edge.model_change * size)

    def _triangle(self, moment: Array) -> list[float]:
        """Return a moment as it is sent: of all features, a few digits, in the order of the triangle."""
        rows = [FEATURES.index(name) for name in self._partition.features]
        whole = np.zeros((max(rows) + 1,) * 2)
        whole[np.ix_(rows, rows)] = moment
        digits = _ALWAYS_DIGITS if self._always else _MOMENT_DIGITS
        bounded = np.clip(keyed_sum.triangle(whole), -1.0, 1.0).tolist()
        return [_short(float(f"{value:.{digits}g}")) for value in bounded]


def identity(node: str, boot: str, seq: int) -> str:
    """Return the message id of a block: a digest, since a readable one would be a fifth of what is sent."""
    return hashlib.blake2b(f"edge:{node}:{boot}:{seq}".encode(), digest_size=8).hexdigest()


def _usage(values: dict[str, float]) -> list[float | None]:
    """Return usage in the order of all features, without the missing ones at the end."""
    sent: list[float | None] = []
    for name in FEATURES:
        value = values.get(name, math.nan)
        digits = _RESOURCE_DECIMALS if name in RESOURCES else _OTHER_DECIMALS
        sent.append(None if math.isnan(value) else _short(round(value, digits)))
    while sent and sent[-1] is None:
        sent.pop()
    return sent


def _short(value: float) -> float:
    """Return 0 and 1 as whole numbers, which are shorter; most pressures are 0."""
    return int(value) if value in (0.0, 1.0) else value


def _measured(block: Block, metric: str) -> Array:
    """Return the samples of a metric that are not missing."""
    column = decode.samples([block])[0, :, decode.COLUMNS[metric]]
    return column[~np.isnan(column)]
