"""`spazio credentials`: who may do what on the bus, as files for nats-server, services, nodes and Kubernetes."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bus.access import private_file
from schemas import role
from schemas.subject import Names, is_node_name
from spazio import count
from spazio.credentials import authority, kubernetes
from spazio.terminal import clean

TLS = "tls/nats"
_MOST_NODES = 100_000
_RELOAD = "have every nats-server read it: nats-server --signal reload=PID, or kill -HUP PID"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be done.

    Attributes:
        nodes: Names of nodes to issue credentials to.
        region: Name of a region that consists of these nodes; empty: none.
        revoke: Users whose credentials end.
        rotate: Whether everybody gets a new key.
        retire: Whether the keys end that rotations have replaced.
    """

    nodes: Sequence[str] = ()
    region: str = ""
    revoke: Sequence[str] = ()
    rotate: bool = False
    retire: bool = False


def run(
    prefix: str, folder: Path, nodes: str | None, revoke: Sequence[str], *, region: str = "", rotate: bool, retire: bool
) -> int:
    """Write credentials into a folder; return the exit status."""
    try:
        wanted = Wanted(names(nodes), region, revoke, rotate, retire)
        for line in issue(folder, Names(prefix), wanted):
            clean.tell(line)
    except (ValueError, OSError) as error:
        clean.complain(error, folder)
        return 2 if isinstance(error, ValueError) else 1
    return 0


def names(given: str | None) -> list[str]:
    """Return names of nodes: those in a file, one a line, or as many as a number says, named as `spazio load` does.

    Raises:
        ValueError: One is no name of a node, there are too many, or the file cannot be read.
    """
    if given is None:
        return []
    if given.isdecimal():
        count = int(given)
        if not 0 < count <= _MOST_NODES:
            raise ValueError(f"--nodes {given}: a number is 1 to {_MOST_NODES}, or give a file with a name a line")
        width = len(str(count - 1))
        return [f"sim-{index:0{width}d}" for index in range(count)]
    try:
        listed = [line.strip() for line in Path(given).read_text().splitlines()]
    except UnicodeDecodeError as error:
        raise ValueError(f"{given}: this is no text; write a file with a node name a line") from error
    except OSError as error:
        raise ValueError(clean.reason(error)) from error
    wrong = [name for name in listed if name and not is_node_name(name)]
    if wrong:
        raise ValueError(f"{given}: {wrong[0]!r} is no name of a node: 1 to 253 characters without white space")
    return list(dict.fromkeys(name for name in listed if name))


def issue(folder: Path, bus: Names, wanted: Wanted) -> Iterable[str]:
    """Issue what is missing and do what is wanted; return what to tell people.

    Raises:
        ValueError: A name cannot be used, or the folder is damaged or one that has such a folder.
        OSError: The folder cannot be written.
    """
    _check(folder, wanted)
    server = folder / authority.SERVER
    before = server.read_text(errors="replace") if server.exists() else ""
    with authority.opened(folder, bus) as own:
        ended = own.revoke(wanted.revoke)
        # A revoked node stays without a credential until a list of nodes names it; a role gets a new one at once.
        present = [name[len("node:") :] for name in own.users if name.startswith("node:")]
        listed = list(dict.fromkeys([*present, *wanted.nodes]))
        files = {each.name: own.role(each, rotate=wanted.rotate) for each in role.ROLES}
        nodes = {name: own.node(name, rotate=wanted.rotate) for name in listed}
        if wanted.region:
            own.region(wanted.region, wanted.nodes, rotate=wanted.rotate)
        left_out = _rotate_others(own, wanted) if wanted.rotate else []
        ended += own.retire() if wanted.retire else 0
    tls = folder / TLS
    made = kubernetes.manifest(server, tls, files, nodes)
    private_file.replace(folder / "kubernetes.yaml", made.text)
    lines = [
        f"{folder}: {count.of(len(files), 'role')}, {count.of(len(nodes), 'node')}; "
        f"the streams are in account {own.account}"
    ]
    lines += [f"kubernetes.yaml leaves out {name}, which no Secret can be named after" for name in made.left_out]
    if not kubernetes.certified(tls):
        lines.append(
            f"kubernetes.yaml has no certificate of the server; for Kubernetes make it in {tls}, and run this again"
        )
    if ended:
        lines.append(f"{count.of(ended, 'key')} revoked")
    lines += [
        f"the region {name} has its old key: its credential is not here; name it again with --region and --nodes FILE"
        for name in left_out
    ]
    if wanted.rotate:
        those = "all others have" if left_out else "everybody has"
        lines.append(f"{those} a new key; hand the files out, then end the old ones with --retire")
    if before and server.read_text() != before:
        lines.append(f"{server} has changed: {_RELOAD}")
    return lines


def _check(folder: Path, wanted: Wanted) -> None:
    inner = folder / authority.FOLDER
    if os.path.exists(inner / authority.SERVER):  # noqa: PTH110 # it raises nothing where it may not look
        raise ValueError(f"{folder} is a data folder with credentials of its own; name {inner}, or another folder")
    if wanted.region and not (wanted.nodes and is_node_name(wanted.region)):
        raise ValueError(f"--region {wanted.region}: name the region, and its nodes with --nodes FILE")
    if (wanted.revoke or wanted.rotate or wanted.retire) and not (folder / authority.ISSUED).exists():
        raise ValueError(f"{folder} has issued nothing: name the folder of your credentials with --out")


def _rotate_others(own: authority.Authority, wanted: Wanted) -> list[str]:
    """Make new keys for the regions that are not issued now, and for the local user; return those without one."""
    own.rotate_local()
    regions = [name[len("region:") :] for name in own.users if name.startswith("region:")]
    return [name for name in regions if name != wanted.region and not own.rotate_region(name)]
