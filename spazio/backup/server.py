"""A server of our own into which a data folder is restored, before `up` starts its server there."""

import asyncio
import contextlib
import json
import os
import secrets
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from bus import server
from spazio.service import child
from spazio.service.data_folder import Owned

_START_SECONDS = 20.0
_END_SECONDS = 60.0

_CONFIG = """\
server_name: restore-{start}
listen: 127.0.0.1:{port}
max_payload: 1MB
# No other client may write between the streams and their end.
authorization {{ user: restore, password: {password} }}
jetstream {{
  store_dir: {store}
  max_file_store: {room}
}}
# The Python client's read loop fails on acknowledgement subjects of version 2.
feature_flags {{ js_ack_fc_v2: false }}
"""


@asynccontextmanager
async def running(folder: Path, room: int, owned: Owned) -> AsyncIterator[str]:
    """Run a server over a new folder for the length of a block; yields its address with a password of its own.

    Args:
        folder: Folder of the streams, as `up` has it in its data folder.
        room: Bytes that all streams together may take.
        owned: The data folder, which stays locked while the server runs.

    Raises:
        Unusable: There is no server program, or it does not start.
    """
    program, port, start, password = server.find(), server.free_port(0), secrets.token_hex(4), secrets.token_hex(16)
    config, log = _configure(folder, port, start, password, room), folder / "restore.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *server.command(program, config),
            stdout=output,
            stderr=output,
            preexec_fn=partial(child.end_with, os.getpid(), signal.SIGTERM),
            pass_fds=(owned.descriptor,),
        )
    owned.lend(process.pid)
    try:
        try:
            async with asyncio.timeout(_START_SECONDS):
                await child.listening(port, start)
        except TimeoutError:
            tail = " | ".join(log.read_text(errors="replace").splitlines()[-3:])
            raise server.Unusable(f"nats-server did not start: {tail or 'it logged nothing'}") from None
        yield f"nats://restore:{password}@127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        config.unlink(missing_ok=True)
        log.unlink(missing_ok=True)


def _configure(folder: Path, port: int, start: str, password: str, room: int) -> Path:
    folder.mkdir(parents=True, mode=0o700)
    config = folder / "restore.conf"
    store = json.dumps(str(folder), ensure_ascii=False)
    text = _CONFIG.format(start=start, port=port, password=password, store=store, room=room)
    with os.fdopen(os.open(config, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    return config
