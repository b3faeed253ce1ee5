"""`spazio backup`: a data folder in one file, while everything runs.

The order is what makes the parts fit. First comes the history with its own position, so that the streams, taken later,
still have every row that it lacks. Then come the buckets and the checkpoints, then what was estimated, and last what
was measured: each part covers all that the parts before it were made from. The one loop, the global model in the
telemetry stream, is cut when the backup is restored.
"""

import asyncio
import re
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from bus import errors, snapshot, stream
from bus.connection import Connection
from bus.snapshot import Snapshot
from schemas import role
from schemas.settings import Settings
from schemas.subject import Names
from spazio import INTERRUPTED, count
from spazio.backup import archive, history
from spazio.backup.archive import Writer
from spazio.credentials import authority
from spazio.service import addresses, reload
from spazio.terminal import clean, latest

SETTINGS = "settings.toml"
STREAMS = "streams"
RUN = "run"
_ATTEMPTS = 5
_BUCKET = ("KV_", "OBJ_")
# In the folder `run`: the key of message ids, with which a retry is recognized, and the containers that were announced.
_KEPT = ("ids.key", "containers.*.json")
_REASONS = (archive.Busy, archive.Unnameable, history.Unsteady)


class Refused(Exception):
    """The backup cannot be made; the message gives the reason and a remedy."""


def run(settings: Settings, target: Path) -> int:
    """Write a backup; return the exit status.

    Args:
        settings: Settings; the server and the history are those of the running `up`, unless they are named.
        target: File that does not exist yet, or a folder, in which a file named by the time is made.
    """
    try:
        path = _file(target)
        asyncio.run(_save(settings, path))
    except latest.Unreachable as error:
        clean.complain(f"{error}; nothing was written")
        return error.status
    except (Refused, *_REASONS, errors.BusError, TimeoutError) as error:
        clean.complain(f"{str(error) or 'the server does not answer'}; nothing was written")
        return 1
    except OSError as error:
        clean.complain(f"{clean.reason(error, target)}; nothing was written")
        return 1
    except KeyboardInterrupt:
        clean.complain("interrupted; nothing was written")
        return INTERRUPTED
    clean.tell(f"{path}  {_size(path.stat().st_size)}")
    return 0


def _file(target: Path) -> Path:
    if target.is_dir():
        return target / f"spazio-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.tar"
    if target.exists():
        raise Refused(f"{target} exists; name a new file, or a folder, in which each backup gets its own name")
    if not target.parent.is_dir():
        raise Refused(f"{target.parent} is no folder; make it, or name a file in another one")
    return target


async def _save(settings: Settings, path: Path) -> None:
    running = addresses.read(settings)
    folder = settings.history_dir
    if settings.history.dir is None and running.get("history"):
        folder = Path(running["history"]).parent
    # A server of others says nothing of the files that this machine has by default.
    of_up = not settings.nats.url or settings.nats_url == running.get("nats")
    ours = of_up or "dir" in settings.data.model_fields_set
    has_history = folder.is_dir() and (ours or settings.history.dir is not None)
    async with latest.dial(addresses.located(settings, role.ADMIN)) as client:
        names = await snapshot.names(client, settings.nats.request_timeout_seconds)
        wanted = _ordered([name for name in names if belongs(settings.prefix, name)], Names(settings.prefix))
        if not wanted:
            raise Refused(
                f"{settings.nats_shown} has no streams of {settings.prefix}: start `spazio up`, or name --nats"
            )
        with Writer(path) as writer:
            copied = await asyncio.to_thread(history.copy, writer, folder) if has_history else 0
            clean.tell(
                f"history {folder}: {count.of(copied, 'file')}"
                if ours or has_history
                else f"no history: {settings.nats_shown} is no server of this machine; name it with --history-dir"
            )
            if ours:
                _add_files(writer, settings.data.dir)
            writer.add_bytes(SETTINGS, _settings(settings, running if of_up else {}).encode())
            taken = [await _add_stream(writer, client, name, settings) for name in wanted]
            about = {
                "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
                "prefix": settings.prefix,
                "versions": {"spazio": _version(), "nats-server": str(client.connected_server_version)},
                "history": has_history,
                "streams": [each._asdict() for each in taken],
            }
            writer.finish(about)


def belongs(prefix: str, name: str) -> bool:
    """Tell whether a stream, or the stream of a bucket, is one of this prefix."""
    return re.fullmatch(rf"(KV_|OBJ_)?{re.escape(prefix.upper())}_[A-Z0-9]+", name) is not None


def is_bucket(name: str) -> bool:
    """Tell whether a stream is that of a bucket or of an object store."""
    return name.startswith(_BUCKET)


def _ordered(streams: list[str], names: Names) -> list[str]:
    later = (names.estimates, names.telemetry)
    return sorted(streams, key=lambda name: (not is_bucket(name), later.index(name) if name in later else -1, name))


async def _add_stream(writer: Writer, client: Connection, name: str, settings: Settings) -> Snapshot:
    """Add the snapshot of a stream. That of a bucket lacks keys that change meanwhile, so it is taken again then.

    The last attempt counts in any case: of each checkpoint two copies are kept and written in turn, the cache is
    written again within seconds, and the cluster watch compares its buckets with the API server when it starts.
    """
    timeout = settings.nats.request_timeout_seconds
    for left in reversed(range(_ATTEMPTS)):
        with writer.spool() as spool:
            taken = await snapshot.take(client, name, spool.write, timeout_seconds=timeout)
            if left and is_bucket(name) and (await stream.describe(client, name)).last != taken.last:
                continue
            spool.flush()
            spool.seek(0)
            writer.add(entry(name), spool)
            break
    clean.tell(
        f"{name}: {count.of(taken.state.get('messages', 0), 'message')}, {_size(writer.entries[entry(name)].bytes)}"
    )
    return taken


def entry(name: str) -> str:
    """Return the name of a stream's entry in a backup."""
    return f"{STREAMS}/{name}.snapshot"


def _add_files(writer: Writer, data: Path) -> None:
    """Add the credentials, and what the services keep to go on after a restart."""
    kept = [path for pattern in _KEPT for path in sorted((data / RUN).glob(pattern))]
    for path in (*sorted((data / authority.FOLDER).rglob("*")), *kept):
        if path.is_file() and not path.is_symlink() and not path.name.startswith("."):
            writer.add_path(path.relative_to(data).as_posix(), path)


def _settings(settings: Settings, running: dict[str, Any]) -> str:
    """Return the settings of the services, as TOML without those of this machine.

    Args:
        settings: Settings of this command.
        running: What addresses.json has of the `up` whose server it is; empty: there is none.
    """
    pids = running.get("pids")
    pid = pids.get("up") if isinstance(pids, dict) else None
    of_up = reload.of_up(settings.data.dir / RUN, pid) if addresses.is_alive(pid) else None
    if of_up is not None:
        return of_up
    clean.tell("settings: those of this command, since no `spazio up` here has noted its own")
    return reload.portable(settings)


def _version() -> str:
    try:
        return metadata.version("spazio")
    except metadata.PackageNotFoundError:  # run from a checkout
        return "checkout"


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
