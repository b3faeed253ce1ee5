"""Message ids that only their publisher can make, and the alarm when somebody else has used one.

A stream stores one message of an id within its window, and acknowledges another as a duplicate. A client that foresees
an id can therefore have a message suppressed that was never stored. So an id is a keyed digest of what the message is:
the same for the same message, however often it is sent, and not to be guessed without the key. The key of a service is
in its data folder, so that a restarted service repeats the ids of what it may have sent before.
"""

import asyncio
import base64
import hashlib
import logging
import secrets
import time
from collections import OrderedDict
from pathlib import Path

from prometheus_client import Counter

from bus.access import private_file
from bus.health import Health

log = logging.getLogger(__name__)

_KEY_BYTES = 32
_ID_BYTES = 12
_MOST_OWN = 2048
_EARLIER_SECONDS = 300.0  # beyond any useful duplicate window: then nothing that an earlier process sent is in it
_ALARM_SECONDS = 600.0
_PART = "message ids"

CLAIMED = Counter(
    "spazio_publish_claimed_total",
    "messages that the stream called duplicates when they were first sent: somebody else has used their id",
)


class Sealer:
    """Makes the ids of one publisher."""

    def __init__(self, key: bytes = b"", *, since: float = 0.0) -> None:
        """Take a key; empty: one of this process alone.

        Args:
            key: Secret bytes.
            since: CLOCK_MONOTONIC until which ids may be those of an earlier process, in seconds; 0: none are.
        """
        self._key, self._since = key or secrets.token_bytes(_KEY_BYTES), since

    @property
    def fresh(self) -> bool:
        """Whether no earlier process can have used an id within any duplicate window."""
        return time.monotonic() > self._since

    def seal(self, identity: bytes, attempt: int = 0) -> str:
        """Return the id of a message; another one for each `attempt`, where an id was claimed by somebody else.

        >>> Sealer(b"key").seal(b"samples:n:b:7") == Sealer(b"key").seal(b"samples:n:b:7")
        True
        >>> Sealer(b"key").seal(b"samples:n:b:7") == Sealer(b"other").seal(b"samples:n:b:7")
        False
        """
        salt = attempt.to_bytes(2, "big")
        digest = hashlib.blake2b(identity, digest_size=_ID_BYTES, key=self._key, salt=salt)
        return base64.urlsafe_b64encode(digest.digest()).decode()


def stored(folder: Path) -> Sealer:
    """Return the sealer whose key is in `run/ids.key` of a data folder (0600); made if there is none.

    Without a folder that can be written the key is that of this process alone.
    """
    path = folder / "run" / "ids.key"
    try:
        key = path.read_bytes()
        if len(key) >= _KEY_BYTES:
            return Sealer(key[:_KEY_BYTES], since=time.monotonic() + _EARLIER_SECONDS)
    except OSError:
        pass
    key = secrets.token_bytes(_KEY_BYTES)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        private_file.replace(path, key)
        # Several services of one folder may start at once; the last to write wins, and the others take its key.
        key = path.read_bytes()
    except OSError as error:
        log.warning("identity.key_not_stored", extra={"reason": str(error)})
    return Sealer(key[:_KEY_BYTES])


class Claims:
    """Tells a repetition of one's own from an id that somebody else has used, and raises the alarm."""

    def __init__(self, health: Health, sealer: Sealer) -> None:
        """Start without any message sent."""
        self._health, self._sealer = health, sealer
        self._own: OrderedDict[int, None] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def sent(self, identity: bytes | str) -> None:
        """Record that a message was stored, or may have been: a later duplicate of it is our own."""
        self._own[hash(identity)] = None
        if len(self._own) > _MOST_OWN:
            self._own.popitem(last=False)

    def claimed(self, identity: bytes | str, subject: str) -> bool:
        """Return whether a duplicate is somebody else's doing; then count it and raise the alarm for ten minutes."""
        if hash(identity) in self._own or not self._sealer.fresh:
            return False
        CLAIMED.inc()
        self._health.degrade(
            _PART,
            f"a message on {subject[:200]} was called a duplicate when it was first sent, so somebody else has used "
            "its id: look at who may publish to this stream, and remove run/ids.key of this service's data folder",
        )
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(_ALARM_SECONDS, self._health.recover, _PART)
        return True
