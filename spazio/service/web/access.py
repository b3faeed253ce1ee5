"""Who may read which page: passwords and client certificates, read again when their files change."""

import base64
import binascii
import hashlib
import hmac
import logging
import os
import secrets
import ssl
import stat
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from bus.access import changed
from schemas.settings import SettingsError
from spazio.service.web import config
from spazio.service.web.config import WebConfig

log = logging.getLogger(__name__)

OPEN = ("/healthz", "/readyz")  # they hold no data, and health checks have no password
_AT_ONCE = 2  # bcrypt is slow on purpose; guesses must not take all cores
_WAIT_SECONDS = 3.0
_MOST_REMEMBERED = 100
_UNKNOWN = "this page needs a user and a password"
# Checked for names that do not exist, so that the time of an answer does not tell which do.
_NOBODY = b"$2b$10$abcdefghijklmnopqrstuuQ2OUnm/5R0HYkVSEBgqBxuMiJhWbVxO"


class _Current(NamedTuple):
    """What holds now."""

    config: WebConfig
    context: ssl.SSLContext | None
    stamps: list[changed.Stamp]


class Access:
    """The rules of one web configuration."""

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises:
            SettingsError: It cannot be used.
        """
        self._path = path
        self._current, self._complaint = _load(path), ""
        self._key = secrets.token_bytes(32)
        self._right: dict[bytes, None] = {}
        self._checking = threading.Semaphore(_AT_ONCE)

    @property
    def tls(self) -> bool:
        """Whether the server speaks HTTPS."""
        return self._current.context is not None

    def refresh(self) -> ssl.SSLContext | None:
        """Read changed files again, and return the TLS context for the next connection; None: plain HTTP.

        Files that cannot be used leave the rules as they were.
        """
        if changed.stamps(self._current.config.files) != self._current.stamps:
            try:
                fresh = _load(self._path)
                _keeps(self._current.config, fresh.config, self._path)
                self._current, self._complaint = fresh, ""
            except SettingsError as error:
                if str(error) != self._complaint:
                    self._complaint = str(error)
                    log.error("http.config_refused", extra={"reason": self._complaint})  # noqa: TRY400 # the reason is enough
        return self._current.context

    def refusal(self, path: str, authorization: str | None, connection: object) -> tuple[int, str] | None:
        """Return status and reason if a request is refused; None: it is answered.

        Args:
            path: The page.
            authorization: The header of that name.
            connection: The socket, which knows the client's certificate.
        """
        if path in OPEN:
            return None
        tls, users = self._current.config.tls, self._current.config.users
        certified = isinstance(connection, ssl.SSLSocket) and bool(connection.getpeercert(binary_form=True))
        if tls is not None and tls.required and not certified:
            return 403, "this page needs a client certificate"
        given = _credentials(authorization or "")
        # Who was right before does not wait behind those who guess.
        if not users or (given is not None and self._seal(users, *given) in self._right):
            return None
        if given is None:
            return 401, _UNKNOWN
        if not self._checking.acquire(timeout=_WAIT_SECONDS):
            return 503, "too many passwords are being checked"
        try:
            return None if self._knows(users, *given) else (401, _UNKNOWN)
        finally:
            self._checking.release()

    def _seal(self, users: Mapping[str, bytes], name: str, password: bytes) -> bytes:
        hashed = users.get(name, _NOBODY)
        return hmac.new(self._key, b"%b\0%b" % (hashed, password), hashlib.sha256).digest()

    def _knows(self, users: Mapping[str, bytes], name: str, password: bytes) -> bool:
        hashed = users.get(name, _NOBODY)
        try:
            right = bool(config.package("bcrypt").checkpw(password, hashed)) and name in users
        except ValueError:  # longer than 72 bytes, or with a zero byte
            right = False
        if right:
            self._right[self._seal(users, name, password)] = None
            if len(self._right) > _MOST_REMEMBERED:
                self._right.pop(next(iter(self._right)), None)
        return right


def _credentials(authorization: str) -> tuple[str, bytes] | None:
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (name.decode(), password) if colon else None
    except (binascii.Error, ValueError):
        return None


def _load(path: Path) -> _Current:
    stamps_before = changed.stamps((path,))
    read = config.read(path)
    context = None if read.tls is None else config.context(read.tls)
    for file in _exposed(read):
        mode = f"{stat.S_IMODE(file.stat().st_mode):o}"
        log.warning("http.config_exposed", extra={"file": str(file), "mode": mode, "remedy": f"chmod 600 {file}"})
    # A change while the files were read has another stamp, so it is found at the next connection.
    return _Current(read, context, stamps_before + changed.stamps(read.files[1:]))


def _keeps(old: WebConfig, new: WebConfig, path: Path) -> None:
    """Refuse a change that takes a protection away: a file that is being written is empty or cut short for a moment.

    Raises:
        SettingsError: A section is missing that was there.
    """
    gone = ["tls_server_config"] * bool(old.tls and not new.tls) + ["basic_auth_users"] * bool(
        old.users and not new.users
    )
    if gone:
        raise SettingsError(
            [f"http config-file: {path} has no {' and no '.join(gone)} any more, which ends at a restart only"]
        )


def _exposed(read: WebConfig) -> list[Path]:
    """Return the files with secrets that other users of this machine can read."""
    secret = [read.files[0]] * bool(read.users) + ([read.tls.key] if read.tls else [])
    return [file for file in secret if os.access(file, os.R_OK) and file.stat().st_mode & stat.S_IROTH]
