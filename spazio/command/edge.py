"""`spazio edge`: the agent of a node that also smooths and models there, and sends only the model and the last values.

What it knows of the node is written to a file now and then, so that a restart does not begin with an empty model. A
file that cannot be used is set aside with a reason; then the local model is whole again after some multiples of its
memory, and the idle baseline once pods have come and gone.
"""

import asyncio
import contextlib
import logging
from pathlib import Path

from prometheus_client import Counter

from bus import errors, subscription
from bus.client import Client
from processors.partition import edge
from schemas import boot, codec
from schemas.settings import Settings
from schemas.subject import Names, token
from spazio.command import agent
from spazio.service import service
from spazio.service.service import Context

log = logging.getLogger(__name__)

REFUSED = Counter(
    "spazio_edge_blocks_refused_total", "blocks of this node that could not be modelled, and were not sent"
)


def run(settings: Settings) -> int:
    """Measure and model this node until told to end; returns the exit status."""
    return service.run("edge", settings, work, streams=False)


async def work(context: Context) -> None:
    """Do what the agent does with a model in front of its outbox, until cancelled."""
    refine = _Modelled(context.settings)
    refine.load()
    ending = asyncio.Event()
    saving = asyncio.create_task(refine.keep_saving(ending))
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(refine.keep_hearing(context.client))
            group.create_task(agent.work(context, refine))
    finally:
        ending.set()
        await saving


class _Modelled(agent.Refine):
    """The node's model, and the file that it is kept in."""

    kind = "edge"
    boot_digits = boot.DIGITS

    def __init__(self, settings: Settings) -> None:
        node = settings.sample.node_name
        self._edge, self._every = edge.Edge(settings, node), settings.edge.save_seconds
        self._model, self._model_seconds = Names(settings.prefix).model, settings.edge.model_seconds
        self._file = settings.data.dir / "edge" / f"{settings.prefix}.{token(node)}.state"
        self._failing = self._known = False

    def identity(self, node: str, boot: str, seq: int) -> str:
        """Return a block's message id."""
        return edge.identity(node, boot, seq)

    def block(self, payload: bytes) -> bytes | None:
        """Return the block that is sent instead."""
        try:
            made = self._edge.block(payload)
        except codec.Refused as refused:
            REFUSED.inc()
            if not self._failing:
                log.warning("edge.refused", extra={"reason": str(refused)})
            self._failing = True
            return None
        self._failing = False
        self._known |= made is not None
        return made

    def event(self, payload: bytes) -> None:
        """Take in what happened to a container."""
        self._edge.event(payload)

    def load(self) -> None:
        """Take over what was saved, if that can be used."""
        try:
            self._edge.load(self._file.read_bytes())
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            log.warning("edge.state_set_aside", extra={"file": str(self._file), "reason": str(error)})
            return
        log.info("edge.state_loaded", extra={"file": str(self._file)})

    async def keep_hearing(self, client: Client) -> None:
        """Take the global model now and then, for ever: one of those that come each second is enough."""
        while True:
            try:
                self._edge.adopt(
                    await subscription.next_payload(client, self._model, timeout_seconds=self._model_seconds)
                )
            except (errors.BusError, codec.Refused, TimeoutError) as error:
                log.debug("edge.no_model", extra={"reason": repr(error)})
            await asyncio.sleep(self._model_seconds)

    async def keep_saving(self, ending: asyncio.Event) -> None:
        """Write the state now and then, and once more at the end."""
        while not ending.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every):
                    await ending.wait()
            if self._known:
                await asyncio.to_thread(_write, self._file, self._edge.dump())


def _write(file: Path, body: bytes) -> None:
    """Write a file as a whole; a folder that cannot be written is no reason to end."""
    hidden = file.with_name(f".{file.name}.new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        hidden.write_bytes(body)
        hidden.replace(file)
    except OSError as error:
        log.warning("edge.state_unsaved", extra={"file": str(file), "reason": str(error)})
