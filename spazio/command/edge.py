"""`spazio edge`: an agent that also smooths and models on its node, and sends only the model and the last values.

It writes its state to a file regularly, so that a restart does not begin with an empty model. A file that cannot be
used is ignored with a log message. The local model is then complete again after some multiples of its memory, and the
idle baseline once pods have started and ended.
"""

import asyncio
import contextlib
import logging
from pathlib import Path

from prometheus_client import Counter

from bus import errors, subscription
from bus.access import private_file
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
    """Measure and model this node until a signal arrives; return the exit status."""
    return service.run("edge", settings, work, streams=False)


async def work(context: Context) -> None:
    """Run the agent with a model in front of its outbox, until cancelled."""
    refine = _Modelled(context.settings)
    refine.load()
    ending = asyncio.Event()
    saving = asyncio.create_task(refine.keep_saving(ending))
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(refine.keep_updating(context.client))
            group.create_task(agent.work(context, refine))
    finally:
        ending.set()
        await saving


class _Modelled(agent.Refine):
    """The node's model, and the file of its state."""

    kind = "edge"
    boot_digits = boot.DIGITS

    def __init__(self, settings: Settings) -> None:
        node = settings.sample.node_name
        self._edge, self._every = edge.Edge(settings, node), settings.edge.save_seconds
        self._model, self._model_seconds = Names(settings.prefix).model, settings.edge.model_seconds
        self._file = settings.data.dir / "edge" / f"{settings.prefix}.{token(node)}.state"
        self._failing = self._has_state = False

    def identity(self, node: str, boot: str, seq: int) -> str:
        """Return a block's message id."""
        return edge.identity(node, boot, seq)

    def block(self, payload: bytes) -> bytes | None:
        """Return the block that is sent instead."""
        try:
            block = self._edge.block(payload)
        except codec.Refused as refused:
            REFUSED.inc()
            if not self._failing:
                log.warning("block.refused", extra={"reason": str(refused)})
            self._failing = True
            return None
        self._failing = False
        self._has_state |= block is not None
        return block

    def event(self, payload: bytes) -> None:
        """Process a container event."""
        self._edge.event(payload)

    def load(self) -> None:
        """Restore the saved state, if it can be used."""
        try:
            self._edge.load(self._file.read_bytes())
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            log.warning("edge.state_ignored", extra={"file": str(self._file), "reason": str(error)})
            return
        log.info("edge.state_loaded", extra={"file": str(self._file)})

    async def keep_updating(self, client: Client) -> None:
        """Adopt a global model regularly, until cancelled: one in `model_seconds` is enough."""
        while True:
            try:
                self._edge.adopt(
                    await subscription.next_payload(client, self._model, timeout_seconds=self._model_seconds)
                )
            except (errors.BusError, codec.Refused, TimeoutError) as error:
                log.debug("edge.model_update_failed", extra={"reason": repr(error)})
            await asyncio.sleep(self._model_seconds)

    async def keep_saving(self, ending: asyncio.Event) -> None:
        """Write the state regularly, and once more at the end."""
        while not ending.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every):
                    await ending.wait()
            if self._has_state:
                await asyncio.to_thread(_write, self._file, self._edge.dump())


def _write(file: Path, body: bytes) -> None:
    """Replace a file; a folder that cannot be written is only logged."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        private_file.replace(file, body)
    except OSError as error:
        log.warning("edge.state_write_failed", extra={"file": str(file), "reason": str(error)})
