"""What the server refuses: a whole connection, or one subject.

nats-py reports both as errors in text. It closes for good when a user is revoked, and hides a refused subject, whose
sender then waits for an answer until its time limit. Here both become sentences with a remedy, which the service logs
once and shows while they hold.
"""

import re
import time
from collections.abc import Callable

from bus.access.credential import Credential

_REFUSED = re.compile(r"authorization violation|authentication (expired|revoked)|permission denied", re.IGNORECASE)
_DENIED = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"', re.IGNORECASE)
_VERBS = {"publish": "publish", "subscription": "subscribe to"}
_HOLDS_SECONDS = 60.0
_MOST = 100


def refuses(error: Exception | str) -> bool:
    """Tell whether the server does not accept the user of a connection."""
    return _REFUSED.search(str(error)) is not None


def sentence(credential: Credential | None, url: str, error: Exception | str) -> str:
    """Return why the server refuses a connection, and what to do."""
    reason = str(error).removeprefix("nats: ").strip("'")
    if credential is None:
        return (
            f"the NATS server {url} wants a credential ({reason}): name a .creds file with --nats-credentials or "
            "SPAZIO_NATS_CREDENTIALS; `spazio credentials` makes them, and `spazio up` names one on its screen"
        )
    return (
        f"the NATS server {url} refuses user {credential.user} ({reason}): {credential.file} is revoked, or the server "
        "has not read the server.conf that `spazio credentials` wrote beside it"
    )


class Denials:
    """Subjects that the server has lately refused, each as a sentence.

    Args:
        clock: Time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sentences: dict[str, tuple[float, str]] = {}

    def take(self, error: Exception | str, credential: Credential | None) -> str | None:
        """Note a refused subject; return a sentence if it is new, an empty one if it is not, None if it is none."""
        match = _DENIED.search(str(error))
        if match is None:
            return None
        verb, subject = _VERBS[match[1].lower()], match[2]
        text = f"this user may not {verb} {subject}: give it a credential (--nats-credentials) whose role may"
        return self.add(subject, str(credential.denied(verb, subject)) if credential else text)

    def add(self, subject: str, text: str) -> str:
        """Note a sentence about a subject; return it if it is new, else an empty one."""
        new = subject not in self._sentences
        if new and len(self._sentences) >= _MOST:
            self._sentences.pop(next(iter(self._sentences)))
        self._sentences[subject] = (self._clock(), text)
        return text if new else ""

    def newest(self) -> str:
        """Return the newest sentence of the last minute; empty: nothing was refused."""
        if not self._sentences:
            return ""
        at, text = max(self._sentences.values())
        return text if self._clock() - at < _HOLDS_SECONDS else ""

    def clear(self) -> None:
        """Forget them: a new connection may be allowed more."""
        self._sentences.clear()
