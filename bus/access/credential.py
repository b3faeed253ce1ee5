"""The credential of a connection: a `.creds` file with a user's claims and key, as NATS tools write and read it.

The claims say what the user may do. The client reads them for two reasons: its inboxes must be under the prefix that
the user may hear, and a request that the server would refuse is refused here at once. The server reports a refused
message only in its log and as an asynchronous error, so the sender would wait for an answer until its time limit.
"""

import base64
import json
import stat
from functools import lru_cache
from pathlib import Path
from typing import Any

import nats.errors

from schemas import role
from schemas.subject import matches

_BEGINS = ("BEGIN NATS USER JWT", "BEGIN USER NKEY SEED")
_ANSWERED = (role.INBOX, role.ACROSS)
_SUBJECTS_REMEMBERED = 1 << 12
_ANYBODY = stat.S_IROTH | stat.S_IWOTH
_REMEDY = "name a file of `spazio credentials` with --nats-credentials or SPAZIO_NATS_CREDENTIALS"


class Unusable(ValueError):
    """A file of the connection cannot be used; the message says which, why and how to fix it."""


class Denied(nats.errors.Error):
    """The user may not do this; the message says who, what and how to fix it."""


class Credential:
    """A user's credential, read from its file again for each connection.

    The client's own reading is not used: it never ends if the file is cut short, as while it is written.

    Attributes:
        file: Where it is.
        user: The user's name.
        publish: Subjects that the user may publish to; empty: any.
        subscribe: Subjects that the user may subscribe to; empty: any.
        payload_bytes: Largest message that the user may publish, with its headers; 0: as the server says.
    """

    def __init__(self, file: Path) -> None:
        """Read the file.

        Raises:
            Unusable: It cannot be used.
        """
        self.file = file
        self.may_publish = lru_cache(_SUBJECTS_REMEMBERED)(self._may_publish)
        self._take(*_read(file))

    def _take(self, jwt: str, key: Any, claims: dict[str, Any]) -> None:
        own = claims.get("nats") or {}
        self._jwt, self._key, self.user = jwt, key, str(claims.get("name") or "unnamed")
        self.publish: tuple[str, ...] = tuple((own.get("pub") or {}).get("allow") or ())
        self.subscribe: tuple[str, ...] = tuple((own.get("sub") or {}).get("allow") or ())
        largest = own.get("payload")
        self.payload_bytes = largest if isinstance(largest, int) and largest > 0 else 0
        self._exact = frozenset(self.publish)
        self._patterns = [each for each in self.publish if "*" in each or each.endswith(">")]
        self._answers = bool(own.get("resp"))  # earlier versions gave this to `process` instead of the inboxes
        self._apart = any(each.startswith(role.API_APART) for each in self.publish)
        self.may_publish.cache_clear()

    def sign(self, nonce: str) -> bytes:
        """Return the signature of the server's nonce, in base64; called before `jwt` at each connection.

        Raises:
            BusError: The file cannot be used now; the client tries again.
        """
        try:
            self._take(*_read(self.file))
        except Unusable as error:
            raise nats.errors.Error(str(error)) from error
        signature: bytes = self._key.sign(nonce.encode())
        return base64.b64encode(signature)

    def jwt(self) -> bytearray:
        """Return the user's claims, as they are sent to the server."""
        return bytearray(self._jwt.encode())

    @property
    def inbox(self) -> str:
        """Prefix of the inboxes that the user may hear."""
        for each in self.subscribe:
            if each.startswith(role.INBOX) and each.endswith(".>"):
                return each.removesuffix(".>")
        return role.INBOX

    def subject(self, subject: str) -> str:
        """Return the subject by which the user's account reaches one of the account that has the streams."""
        return role.apart(subject) if self._apart else subject

    def _may_publish(self, subject: str) -> bool:
        """Tell whether the user may publish to a subject."""
        subject = self.subject(subject)
        if not self.publish or subject in self._exact or (self._answers and subject.startswith(_ANSWERED)):
            return True
        return any(matches(each, subject) for each in self._patterns)

    def denied(self, verb: str, subject: str) -> Denied:
        """Return the error of something that the user may not do; `verb` is publish or subscribe to."""
        return Denied(
            f"user {self.user} may not {verb} {subject}: use the credential of another role than {self.file}, "
            "or have `spazio credentials` issue one for this name"
        )


def _read(file: Path) -> tuple[str, Any, dict[str, Any]]:
    """Return claims as signed, the key that signs, and claims.

    Raises:
        Unusable: The file cannot be read, it holds no credential, or anybody can read it.
    """
    import nkeys  # type: ignore[import-untyped] # noqa: PLC0415 # has no type hints; only who has a credential needs it

    try:
        mode = file.stat().st_mode
        lines = file.read_text().splitlines()
    except FileNotFoundError:
        raise Unusable(f"nats credentials: {file} does not exist; {_REMEDY}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is no text"
        raise Unusable(f"nats credentials: {file} cannot be read: {reason}; {_REMEDY}") from error
    try:
        jwt, seed = (
            lines[next(number for number, line in enumerate(lines) if begin in line) + 1].strip() for begin in _BEGINS
        )
        part = jwt.split(".")[1]
        claims = dict(json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))))
        key = nkeys.from_seed(bytearray(seed.encode()))
    except (nkeys.NkeysError, RuntimeError, StopIteration, LookupError, ValueError, TypeError) as error:
        raise Unusable(f"nats credentials: {file} holds no NATS credential; {_REMEDY}") from error
    if mode & _ANYBODY:
        raise Unusable(f"nats credentials: {file} is open to every user of this machine: chmod 600 {file}")
    return jwt, key, claims
