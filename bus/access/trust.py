"""TLS of a connection to the server: its authority, and the client's own certificate, as they are now.

Certificates are renewed, and authorities replaced, while services run. So the files are read again before each attempt
to connect. Files that cannot be used then, as while they are written, leave the ones before in use.
"""

import logging
import ssl

from bus.access.changed import Stamp, stamps
from bus.access.credential import Unusable
from schemas.sections.bus import Nats

log = logging.getLogger(__name__)


class Trust:
    """The TLS files of the settings."""

    def __init__(self, nats: Nats) -> None:
        """Read the files.

        Raises:
            Unusable: One cannot be used, or there is a key without a certificate.
        """
        self._nats = nats
        self._stamps = self._now()  # before the files are read: a later change has another stamp
        self._context = _context(nats)

    def _now(self) -> list[Stamp]:
        return stamps((self._nats.ca, self._nats.cert, self._nats.key))

    def context(self) -> ssl.SSLContext:
        """Return the context for the next attempt to connect."""
        now = self._now()
        if now != self._stamps:
            self._stamps = now  # one line in the log for each change
            try:
                self._context = _context(self._nats)
            except Unusable as error:
                log.error("nats.tls_renewal_failed", extra={"reason": f"{error}; those read before stay in use"})  # noqa: TRY400 # the reason is enough
        return self._context


def trust(nats: Nats) -> Trust | None:
    """Return the TLS files of the settings; None: no file is set.

    Raises:
        Unusable: A file cannot be used, or there is a key without a certificate.
    """
    return None if nats.ca is None and nats.cert is None and nats.key is None else Trust(nats)


def _context(nats: Nats) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=None if nats.ca is None else str(nats.ca))
    except (OSError, ssl.SSLError) as error:
        raise Unusable(f"nats ca: {nats.ca} holds no certificates (PEM) that can be read: {_reason(error)}") from error
    if nats.cert is not None:
        try:
            context.load_cert_chain(nats.cert, nats.key, no_password)
        except (OSError, ValueError) as error:
            raise Unusable(
                f"nats cert: {nats.cert} with key {nats.key or nats.cert} cannot be used: {_reason(error)}"
            ) from error
    elif nats.key is not None:
        raise Unusable(f"nats key: {nats.key} has no certificate; name it with --nats-cert")
    return context


def no_password() -> str:
    """Keep OpenSSL from asking for the password of a key on the terminal."""
    raise ValueError("the key has a password")


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
