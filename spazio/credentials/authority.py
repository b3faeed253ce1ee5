"""A folder of credentials: keys of operator and accounts, what was issued with them, and the server's part of it.

    operator.nk account.nk nodes.nk system.nk   seeds of the signing keys; who has one may issue anything below it
    <role>.nk                                   the same, for the account of one role
    server.conf                                 public: accounts, and what is revoked; nats-server includes it
    leaf.conf                                   public: the same for the leaf servers of regions: nodes only
    issued.json                                 public: the keys of every user, and the signed accounts
    roles/<role>.creds nodes/<token>.creds      one secret each, for the one who uses it
    regions/<region>.creds                      the same for the leaf server of a region

Everything here is for its owner's eyes only. A second run keeps what there is: it adds what is missing, and signs a
credential again, with the same key, if its role may now do other things. Several programs may use a folder at a time;
a lock file makes them take turns.
"""

import contextlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bus.access import file_lock, private_file
from schemas import role as roles
from schemas.role import Role
from schemas.subject import Names, token
from spazio.credentials import claims
from spazio.credentials.accounts import APART, MAIN, NODES, Accounts
from spazio.credentials.claims import Key

FOLDER = "credentials"  # of the credentials that `spazio up` makes, in its data folder
SERVER = "server.conf"
LEAF = "leaf.conf"
_PUBLIC = "# Who may do what: include this in the configuration of {}. It holds no secret.\n"
READER = "reader.creds"  # only where `spazio up` runs: for other programs of its user
ISSUED = "issued.json"
# What was issued until this second is refused: everything of a key, also if the clock was ahead.
_FOR_EVER = 1 << 40
_KEYS = {"operator": claims.OPERATOR} | dict.fromkeys(
    (MAIN, NODES, "system", *(each.name for each in APART)), claims.ACCOUNT
)


class Unusable(ValueError):
    """The folder cannot be used; the message says what, where and how to fix it."""


@contextmanager
def opened(folder: Path, names: Names) -> Iterator["Authority"]:
    """Hold the authority of a folder for the length of a block, then write what has changed for the server.

    Raises:
        Unusable: A file in it is damaged.
        OSError: It cannot be read or written.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    with os.fdopen(os.open(folder / ".lock", os.O_WRONLY | os.O_CREAT, 0o600), "w") as lock:
        file_lock.take(lock, wait=True)
        authority = Authority(folder, names)
        try:
            yield authority
        finally:  # what was issued or revoked before a failure is listed, too
            authority.save()


def local(folder: Path, names: Names, node: str) -> "Authority":
    """Issue what `spazio up` needs for its services and its user; return the authority.

    Args:
        folder: The folder.
        names: Names on the bus.
        node: Name of this node.

    Raises:
        Unusable: A file in it is damaged.
        OSError: It cannot be read or written.
    """
    with opened(folder, names) as own:
        for role in roles.ROLES:
            own.role(role)
        own.role(roles.LOCAL_ROLE, folder / READER)
        with contextlib.suppress(ValueError):  # too long a name for a credential: its agent uses that of a region
            own.node(node)
    return own


class Authority:
    """Issues and revokes credentials; use `opened`."""

    def __init__(self, folder: Path, names: Names) -> None:
        self._folder, self._names, self._at = folder, names, int(time.time())
        self._keys = {name: self._key(name, kind) for name, kind in _KEYS.items()}
        self._users, self._accounts, revoked = self._read_issued()
        self._revoked = dict.fromkeys(revoked, _FOR_EVER)  # earlier versions wrote the time

    @property
    def account(self) -> str:
        """Public key of the account that has the streams; the server keeps them in a folder of this name."""
        return self._keys[MAIN].public

    @property
    def users(self) -> list[str]:
        """Names of all users to whom something was issued."""
        return sorted(self._users)

    def role(self, role: Role, path: Path | None = None, *, rotate: bool = False) -> Path:
        """Issue a role's credential, unless there is one; return its file.

        Args:
            role: The role.
            path: The file; by default in the folder `roles`.
            rotate: Make a new key. The old credential stays valid until it is retired.
        """
        file = path or self._folder / "roles" / f"{role.name}.creds"
        account = role.name if role.apart else NODES if role.within_nodes else MAIN
        limits = claims.REGION if role.within_nodes else claims.UNBOUNDED
        return self._issue(role.name, claims.user(role.allowed(self._names), limits), account, file, rotate=rotate)

    def node(self, name: str, *, rotate: bool = False) -> Path:
        """Issue a node's credential, unless there is one; return its file.

        Raises:
            ValueError: The name is too long for a credential.
        """
        grant, file = roles.node(self._names, name), self._folder / "nodes" / f"{token(name)}.creds"
        return self._issue(f"node:{name}", claims.user(grant, claims.NODE), NODES, file, rotate=rotate)

    def region(self, name: str, nodes: Iterable[str], *, rotate: bool = False) -> Path:
        """Issue the credential of a region's leaf server, for these nodes and no other; return its file.

        Raises:
            ValueError: The name of a node is too long for a credential.
        """
        body = claims.user(roles.region(self._names, nodes), claims.REGION)
        return self._issue(f"region:{name}", body, NODES, self._region_file(name), rotate=rotate)

    def rotate_region(self, name: str) -> bool:
        """Make a new key for a region, for the same nodes; False: its credential is not here, which names them."""
        file = self._region_file(name)
        jwt, key = self._present(file)
        if key is None:
            return False
        body = {field: value for field, value in jwt["nats"].items() if field != "version"}
        self._issue(f"region:{name}", body, NODES, file, rotate=True)
        return True

    def rotate_local(self) -> None:
        """Make a new key for the user of `spazio up`, where there is one."""
        if (self._folder / READER).exists():
            self.role(roles.LOCAL_ROLE, self._folder / READER, rotate=True)

    def revoke(self, names: Iterable[str]) -> int:
        """Revoke all that was issued to users so far, and forget their files; return the number of keys.

        Raises:
            Unusable: There is no such user; then none is revoked.
        """
        return sum(self._end(user) for user in [self._user(name) for name in names])

    def _region_file(self, name: str) -> Path:
        return self._folder / "regions" / f"{token(name)}.creds"

    def _user(self, name: str) -> str:
        """Return the user that somebody means."""
        matching = [user for user in (name, f"node:{name}", f"region:{name}") if user in self._users]
        if not matching:
            listed = ", ".join(self.users[:8]) + (" …" if len(self._users) > 8 else "")
            raise Unusable(f"{self._folder} has issued nothing to {name}; it knows {listed}")
        if len(matching) > 1:
            raise Unusable(
                f"{name} has several meanings: name {' or '.join(matching[1:])}, or revoke both by their names"
            )
        return matching[0]

    def _end(self, name: str) -> int:
        keys = self._users.pop(name, [])
        for key in keys:
            self._revoked[key] = _FOR_EVER
        kind, colon, own = name.partition(":")  # a node's name may have colons of its own
        folder, user = (f"{kind}s", own) if colon else ("roles", kind)
        (self._folder / folder / f"{token(user)}.creds").unlink(missing_ok=True)
        return len(keys)

    def retire(self) -> int:
        """Revoke every key that a rotation has replaced; return their number."""
        old = [key for keys in self._users.values() for key in keys[:-1]]
        self._revoked |= dict.fromkeys(old, _FOR_EVER)
        self._users = {name: keys[-1:] for name, keys in self._users.items()}
        return len(old)

    def save(self) -> None:
        """Write the server's configuration and the list of what was issued."""
        system = self._keys["system"]
        shared = Accounts(self._names, lambda name: self._keys[name].public)
        main = claims.account(storage=True, revoked=self._revoked, **shared.main())
        bounds: dict[str, Any] = {"payload_bytes": claims.NODE.payload_bytes, "revoked": self._revoked}
        nodes = claims.account(**bounds, **shared.nodes())
        self._sign_account("operator", "spazio", claims.operator(system.public))
        self._sign_account(MAIN, "spazio", main)
        self._sign_account(NODES, "spazio-nodes", nodes)
        for each in APART:
            body = claims.account(revoked=self._revoked, **shared.apart(each))
            self._sign_account(each.name, f"spazio-{each.name}", body)
        self._sign_account("system", "spazio-system", claims.account())
        # A leaf server passes on what nodes publish; with the imports it would answer itself.
        self._sign_account("leaf", "spazio-nodes", claims.account(**bounds), key=NODES)
        accounts = [name for name in _KEYS if name != "operator"]
        self._write(self._folder / SERVER, _PUBLIC.format("nats-server") + self._trusted(*accounts))
        named = f"SPAZIO_NODES_ACCOUNT: {self._keys['nodes'].public}\n"
        self._write(self._folder / LEAF, _PUBLIC.format("a leaf server") + named + self._trusted("leaf", "system"))
        issued = {"users": self._users, "revoked": self._revoked, "accounts": self._accounts}
        self._write(self._folder / ISSUED, json.dumps(issued, indent=1) + "\n")

    def _trusted(self, *accounts: str) -> str:
        signed = {str(claims.read(self._accounts[name])["sub"]): self._accounts[name] for name in accounts}
        preload = "".join(f"  {public}: {jwt}\n" for public, jwt in signed.items())
        return (
            f"operator: {self._accounts['operator']}\nsystem_account: {self._keys['system'].public}\n"
            f"resolver: MEMORY\nresolver_preload: {{\n{preload}}}\n"
        )

    def _issue(self, user: str, body: dict[str, Any], account: str, file: Path, *, rotate: bool) -> Path:
        issuer = self._keys[account]
        jwt, key = self._present(file)
        valid = key is not None and key.public in self._users.get(user, ()) and key.public not in self._revoked
        if key is None or rotate or not valid:
            key = claims.new_key(claims.USER)
            self._users.setdefault(user, []).append(key.public)
        elif jwt.get("iss") == issuer.public and jwt.get("nats") == {**body, "version": 2}:
            return file
        shown = user.replace("node:", "node ", 1)
        self._write(file, claims.credential(claims.sign(issuer, key.public, shown, body, self._at), key.seed))
        return file

    def _present(self, file: Path) -> tuple[dict[str, Any], Key | None]:
        """Return the claims and the key in a credential's file."""
        try:
            lines = file.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return {}, None
        with contextlib.suppress(ValueError, StopIteration):
            jwt = next(line for line in lines if line.startswith("ey"))
            return claims.read(jwt), claims.key_of(next(line for line in lines if line.startswith("SU")))
        return {}, None

    def _sign_account(self, name: str, shown: str, body: dict[str, Any], key: str = "") -> None:
        """Sign an account's claims, unless they are as they were: the server's file then stays the same."""
        before, public = claims.read(self._accounts.get(name, "")), self._keys[key or name].public
        if before.get("nats") != {**body, "version": 2} or before.get("sub") != public:
            self._accounts[name] = claims.sign(self._keys["operator"], public, shown, body, self._at)

    def _key(self, name: str, kind: int) -> Key:
        file = self._folder / f"{name}.nk"
        try:
            return claims.key_of(file.read_text().strip())
        except FileNotFoundError:
            key = claims.new_key(kind)
            self._write(file, key.seed + "\n")
            return key
        except ValueError as error:
            raise Unusable(f"{file} {error}; put the right one back from a backup, or use another folder") from error

    def _read_issued(self) -> tuple[dict[str, list[str]], dict[str, str], dict[str, int]]:
        file = self._folder / ISSUED
        try:
            issued = json.loads(file.read_text())
            return issued["users"], issued["accounts"], issued["revoked"]
        except FileNotFoundError:
            return {}, {}, {}
        except (ValueError, LookupError, TypeError) as error:
            raise Unusable(
                f"{file} is damaged ({error!r}), and with it the list of what is revoked; put it back from a backup"
            ) from error

    def _write(self, file: Path, text: str) -> None:
        """Replace a file that only its owner may read, if its text is another."""
        with contextlib.suppress(FileNotFoundError):
            if file.read_text(errors="replace") == text:
                file.chmod(0o600)
                return
        if file.parent != self._folder:
            file.parent.mkdir(exist_ok=True, mode=0o700)
        # A damaged credential is issued again, a damaged signing key is lost.
        private_file.replace(file, text, durable=file.parent == self._folder)
