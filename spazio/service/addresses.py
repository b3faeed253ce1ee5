"""`addresses.json`: the addresses of a running `spazio up`, for scripts and for other commands."""

import json
import os
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import urlsplit

from bus.access import local, private_file
from schemas import role
from schemas.settings import Settings
from schemas.subject import token

_ON_NODES = ("agent", "edge")
FILE = "addresses.json"
DASHBOARD = "pages.json"  # the dashboard's address for a browser
SCHEDULER = "scheduler.json"  # the extender's address for kube-scheduler


class Target(TypedDict):
    """Some pages for Prometheus' HTTP service discovery."""

    targets: list[str]
    labels: dict[str, str]


def write(folder: Path, content: dict[str, Any]) -> None:
    """Replace the file; only this user may read it, since the server's address may contain a password."""
    private_file.replace(folder / FILE, json.dumps(content, indent=2) + "\n")


def read(settings: Settings) -> dict[str, Any]:
    """Return the contents of the file; empty if there is none, or it is none of ours."""
    try:
        content = json.loads((settings.data.dir / FILE).read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def is_alive(pid: object) -> bool:
    """Tell whether a process of the file runs; of what is no process id, nothing does."""
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def targets(settings: Settings, asked: str = "") -> list[Target]:
    """Return the pages of the services of a running `up`, labelled by `service`, as alerts and dashboards expect.

    Args:
        settings: All settings; the data folder names the services.
        asked: Header Host of the request: where a service listens on all addresses, the one that is asked serves, too.
    """
    services = read(settings).get("services")
    listed = services.items() if isinstance(services, dict) else ()
    return [target for name, url in listed if (target := _target(name, url, local.host(asked))) is not None]


def _target(service: str, url: object, asked: str) -> Target | None:
    """Return the pages at an address; None: it is none."""
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        port = parts.port if parts is not None else None
    except ValueError:
        return None
    if parts is None or not parts.netloc:
        return None
    everywhere = asked and local.is_everywhere(parts.hostname)
    netloc = f"{local.url_host(asked)}:{port}" if everywhere else parts.netloc
    return Target(targets=[netloc], labels={"service": service.partition("-")[0], "__scheme__": parts.scheme})


def located(settings: Settings, service: str = role.READER) -> Settings:
    """Return settings with the server of the running `up` and a credential for it, unless they already have these.

    Args:
        settings: Settings of a command.
        service: The service that it is, or the role that it needs.
    """
    content = read(settings)
    url, reader = content.get("nats"), content.get("credentials")
    if not isinstance(url, str) or settings.nats.url not in ("", url):
        return settings
    changed: dict[str, Any] = {"url": url}
    if settings.nats.credentials is None and isinstance(reader, str) and reader:
        changed["credentials"] = credential(Path(reader), service, settings)
    return settings.model_copy(update={"nats": settings.nats.model_copy(update=changed)})


def admitted(settings: Settings, service: str) -> Settings:
    """Return settings with a service's credential for the server of the running `up`, if they are to connect to it."""
    return located(settings, service) if settings.nats_url == read(settings).get("nats") else settings


def child(service: str, replica: int) -> str:
    """Return the name of a service's process among those of `spazio up`; only processors have several."""
    return f"{service}-{replica}" if service == "process" and replica > 1 else service


def credential(reader: Path, service: str, settings: Settings) -> Path:
    """Return the credential of a service or role beside that of readers; that one, if there is no other."""
    own = reader.parent / "roles" / f"{service}.creds"
    if service in _ON_NODES:
        own = reader.parent / "nodes" / f"{token(settings.sample.node_name)}.creds"
        if not _is_file(own):  # the name is too long for a credential of its own
            own = reader.parent / "roles" / f"{role.REGION}.creds"
    return own if _is_file(own) else reader


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long for a file
        return False
