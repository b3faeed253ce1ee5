"""TLS of a sink that serves: a context from the settings' files, which reloads renewed files."""

import ssl
from pathlib import Path
from typing import NamedTuple

from bus.access import trust
from bus.access.changed import Stamp, stamps
from schemas.settings import SettingsError


class Files(NamedTuple):
    """Files in PEM.

    Attributes:
        owner: What the settings belong to, as in `extender`; errors name it.
        cert: Certificate; None: plain HTTP.
        key: Its key.
        client_ca: Authority that signs client certificates; None: no client certificate is required.
    """

    owner: str
    cert: Path | None
    key: Path | None
    client_ca: Path | None

    def flag(self, name: str) -> str:
        """Return the option that names a file: `cert`, `key` or `client-ca`."""
        return f"--{self.owner.replace(' ', '-')}-tls-{name}"


class Identity:
    """A server's certificate, and the authorities of its clients.

    Attributes:
        context: Context of the server; connections that begin after a renewal use the new certificate, and clients need
            one of an authority that is named then. OpenSSL cannot remove authorities from a context, so each handshake
            is given the newest one. No session is resumed by a ticket, which would spare a client its certificate.
    """

    def __init__(self, files: Files) -> None:
        """Read the files.

        Raises:
            SettingsError: A file is missing, unreadable or invalid.
        """
        self._files = files
        self._seen = self._stamps()  # before the files are read: a later change has another stamp
        self._newest = self.context = _context(files)
        self.context.sni_callback = self._give_newest  # OpenSSL calls it for each handshake, with a name or without

    def renew(self) -> str:
        """Reload changed files; returns the error, empty: none.

        During a renewal, key and certificate may not match; the old certificate stays until they do.
        """
        now = self._stamps()
        if now == self._seen:
            return ""
        try:
            self._newest = _context(self._files)
        except SettingsError as error:
            return str(error)
        self._seen = now
        return ""

    def _give_newest(
        self, handshake: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext
    ) -> ssl.AlertDescription | None:
        # A session of TLS 1.2 is resumed by its id without a certificate, and its authority may be gone.
        if self._files.client_ca is not None and handshake.session_reused:
            return ssl.AlertDescription.ALERT_DESCRIPTION_HANDSHAKE_FAILURE
        handshake.context = self._newest
        return None

    def _stamps(self) -> list[Stamp]:
        return stamps((self._files.cert, self._files.key, self._files.client_ca))


def identity(files: Files) -> Identity | None:
    """Return the identity for HTTPS; None: the server uses plain HTTP.

    Raises:
        SettingsError: As `Identity`, or a setting needs another one that is not set.
    """
    if files.cert is not None:
        return Identity(files)
    for name, path in (("key", files.key), ("client-ca", files.client_ca)):
        if path is not None:
            reason = f"{path} is of no use without a certificate; name one with {files.flag('cert')}"
            raise SettingsError([f"{files.owner} tls {name}: {reason}"])
    return None


def _context(files: Files) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET
    _load(context, files)
    if files.client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _load(context: ssl.SSLContext, files: Files) -> None:
    owner, certificate, key, clients = files
    assert certificate is not None
    for name, path in (("cert", certificate), ("key", key), ("client-ca", clients)):
        if path is not None:
            _readable(files, name, path)
    try:
        context.load_cert_chain(certificate, key, trust.no_password)
    except (OSError, ValueError) as error:
        raise SettingsError(
            [
                f"{owner} tls cert: {certificate} and {key or 'no key'} cannot be used: {_reason(error)}; both are "
                "PEM, the key belongs to the certificate and has no password"
            ]
        ) from None
    if clients is not None:
        try:
            context.load_verify_locations(clients)
        except (OSError, ValueError) as error:
            raise SettingsError(
                [f"{owner} tls client-ca: {clients} cannot be used: {_reason(error)}; it holds certificates in PEM"]
            ) from None


def _readable(files: Files, name: str, path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise SettingsError(
            [f"{files.owner} tls {name}: {path} cannot be read: {error.strerror}; name a file with {files.flag(name)}"]
        ) from None


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)
