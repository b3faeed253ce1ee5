"""`spazio histograms`: learned usage of nodes and pods, in the format of Koordinator's checkpoints or of the VPA's.

Export reads the newest checkpoints while processors run. Import changes the checkpoints and requires that no processor
runs: a running one would overwrite them with its own state. There is one file for each histogram, `<node>/<UID>` as
Koordinator's agent has them, which takes the UID from the name; the UIDs of a node's groups are Koordinator's own
(`__node__`, `__node-koord-prod__`, ...). In the form of the Vertical Pod Autoscaler it is `<node>/<UID>.json`, a
VerticalPodAutoscalerCheckpoint, of the pod and not of a container.
"""

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bus import errors, stream
from bus.client import Client
from bus.folding import checkpoint, worker_pool
from bus.folding.checkpoint import Checkpoint
from processors.prediction import checkpoint as prediction_state
from processors.prediction.fold import PredictionPartition
from processors.prediction.histogram import bucket, convert, exchange
from schemas.settings import Settings
from schemas.subject import Names, name, token
from spazio import count
from spazio.service import processing
from spazio.terminal import clean, latest

Form = Literal["koordinator", "vpa"]


class Refused(Exception):
    """The command cannot be done; the message gives the reason and a remedy."""


class _Stored(NamedTuple):
    """The checkpointed predictions of a partition; half-lives are those that its histograms have."""

    part: str
    predictions: PredictionPartition
    checkpoint: Checkpoint
    horizon_seconds: float
    half_lives: tuple[float, float]


def export(settings: Settings, folder: Path, form: Form = "koordinator") -> int:
    """Write every checkpointed histogram; return the exit status."""
    return asyncio.run(_reported(_export(settings, folder, form)))


def take(settings: Settings, folder: Path, form: Form = "koordinator") -> int:
    """Replace checkpointed histograms; return the exit status."""
    return asyncio.run(_reported(_take(settings, folder, form)))


async def _reported(work: Awaitable[str]) -> int:
    try:
        print(await work)
    except latest.Unreachable as error:
        clean.complain(error)
        return error.status
    except (Refused, errors.BusError, OSError, TimeoutError, ValueError) as error:
        clean.complain(error)
        return 1
    return 0


async def _export(settings: Settings, folder: Path, form: Form) -> str:
    written = 0
    async with _stored(settings) as (_, _, partitions):
        async for stored in partitions:
            for node, model in stored.predictions.models():
                node_folder = folder / token(node)
                node_folder.mkdir(parents=True, exist_ok=True)
                own = form == "koordinator"
                document: dict[str, Any] = (
                    exchange.write_koordinator(model) if own else convert.write_vpa(model, stored.half_lives)
                )
                text = json.dumps(document, indent=1)
                (node_folder / (_file(model.uid) if own else f"{token(model.uid)}.json")).write_text(text)
                written += 1
    if not written:
        raise Refused("no processor has written a checkpoint with a histogram yet: it does so once a minute")
    return f"{count.of(written, 'histogram')} written to {folder}"


def _file(uid: str) -> str:
    """Return the name of Koordinator's file of a UID: the UID itself, unless import would not read such a file."""
    return token(uid) if "/" in uid or uid.startswith(".") or uid.endswith(".tmp") else uid


def _lives(settings: Settings) -> tuple[float, float]:
    return settings.predict.half_life_cpu_seconds, settings.predict.half_life_memory_seconds


async def _take(settings: Settings, folder: Path, form: Form) -> str:
    lives = _lives(settings)
    models = _read_all(folder, form, lives)
    theirs = float(bucket.KOORDINATOR_CPU_HALF_LIFE_SECONDS), float(bucket.KOORDINATOR_MEMORY_HALF_LIFE_SECONDS)
    if form == "koordinator" and lives != theirs:
        raise Refused(f"predict.half_life_* are {lives}, Koordinator's weights are of {theirs}: set these to import")
    left, taken = dict(models), 0
    changes = dict[str, Checkpoint]()
    async with _stored(settings) as (client, store, partitions):
        if await worker_pool.replicas(client, settings.prefix):
            raise Refused("processors run and would overwrite it with their own state: stop them first")
        async for stored in partitions:
            _check_settings(settings, stored)
            adopted = [path for path, model in left.items() if stored.predictions.adopt(name(path.parent.name), model)]
            for path in adopted:
                del left[path]
            if adopted:
                changes[stored.part] = dataclasses.replace(stored.checkpoint, body=stored.predictions.snapshot())
                taken += len(adopted)
        for part, changed in changes.items():
            for _ in range(2):  # so that neither of the two kept checkpoints is the old one of the same sequence
                await store.save(part, changed)
    for path in left:
        clean.complain(f"{path}: no processor knows this node or pod, skipped")
    return f"{count.of(taken, 'histogram')} imported, {len(left)} skipped"


def _check_settings(settings: Settings, stored: _Stored) -> None:
    """Check that a state would be stored as its processors have made it, and not as of other settings."""
    horizon_seconds, lives = settings.predict.horizon_seconds, _lives(settings)
    if (stored.horizon_seconds, stored.half_lives) != (horizon_seconds, lives):
        raise Refused(
            f"checkpoint of {stored.part} is of predict.horizon_seconds {stored.horizon_seconds:g} and "
            f"predict.half_life_* {stored.half_lives}, these settings have {horizon_seconds:g} and {lives}: "
            "import with the settings of the processors (--config, or the same options)"
        )


def _read_all(folder: Path, form: Form, lives: tuple[float, float]) -> dict[Path, exchange.Koordinator]:
    """Read each file. In the form of Koordinator the UID is in it; with `.json` are those that older versions wrote.

    Koordinator's agent leaves a `.tmp` behind when it is killed.
    """
    pattern, layout = ("*/*.json", "<node>/<UID>.json") if form == "vpa" else ("*/*", "<node>/<UID>")
    paths = [path for path in sorted(folder.glob(pattern)) if path.suffix != ".tmp" and path.name[0] != "."]
    models = {path: _read(path, form, lives) for path in paths if path.is_file()}
    if not models:
        raise Refused(f"{folder} has no {layout}; `spazio histograms export {folder}` shows the layout")
    files = dict[tuple[Path, str], Path]()
    for path, model in models.items():
        if (other := files.setdefault((path.parent, model.uid), path)) != path:
            raise Refused(f"{other} and {path} are of the same pod: remove one of them")
    return models


def _read(path: Path, form: Form, lives: tuple[float, float]) -> exchange.Koordinator:
    try:
        name(path.parent.name)
        document = json.loads(path.read_text())
        if form == "vpa":
            return convert.read_vpa(name(path.stem), document, lives)
        return exchange.read_koordinator(document)
    except ValueError as error:
        raise Refused(f"{path}: {error}") from error
    except RecursionError:
        raise Refused(f"{path}: it is nested too deeply") from None


@asynccontextmanager
async def _stored(settings: Settings) -> AsyncIterator[tuple[Client, checkpoint.Store, AsyncIterator[_Stored]]]:
    names = Names(settings.prefix)
    async with latest.dial(settings) as client:
        try:
            source = await stream.describe(client, names.telemetry)
        except errors.NotFound:
            raise latest.Unreachable(
                f"{settings.nats_shown} has no stream {names.telemetry}: start `spazio up`"
            ) from None
        store = checkpoint.Store(client, names.checkpoints, timeout_seconds=settings.nats.request_timeout_seconds)
        yield client, store, _outlooks(settings, store, source)


async def _outlooks(settings: Settings, store: checkpoint.Store, source: stream.Stream) -> AsyncIterator[_Stored]:
    for number in range(source.partitions):
        part = f"{processing.PREDICTION}-{number}"
        stored = await store.load(part, source.identity)
        if stored is None:
            continue
        predictions = PredictionPartition(settings, number)
        try:
            predictions.restore(stored.body)
            horizon_seconds, lives = prediction_state.learned_with(stored.body)
        except ValueError as error:
            raise Refused(f"checkpoint of {part}: {error}; use the settings of the processors") from error
        yield _Stored(part, predictions, stored, horizon_seconds, lives)
