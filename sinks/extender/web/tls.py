"""HTTPS of the extender: a context made of the settings' files, which takes renewed files as they come."""

import ssl
from pathlib import Path

from schemas.sections.placement import Extender
from schemas.settings import SettingsError

_LEFT = "extender tls client-ca: {} has lost authorities whose certificates are taken until a restart: start it anew"


class Identity:
    """Who the extender is, and whose certificates it takes.

    Attributes:
        context: For a server; connections that begin after a renewal see the new certificate.
    """

    def __init__(self, settings: Extender) -> None:
        """Read the files.

        Raises:
            SettingsError: A file is missing, cannot be read, or is not what it should be.
        """
        self._settings = settings
        self.context = _context(settings)
        self._seen = self._stamps()
        self._left = ""

    def renew(self) -> str:
        """Take up files that have changed; returns what is wrong with them, empty: nothing.

        Half of a renewal may be seen: then the old certificate stays until the files fit together.
        """
        stamps = self._stamps()
        if stamps == self._seen:
            return self._left
        try:
            fresh = _context(self._settings)  # tried on another one first: a failure must leave this one as it is
            _load(self.context, self._settings)
        except SettingsError as error:
            return str(error)
        self._seen = stamps
        # OpenSSL takes authorities into a context, and never out of it.
        trusted = set(self.context.get_ca_certs(binary_form=True)) - set(fresh.get_ca_certs(binary_form=True))
        self._left = _LEFT.format(self._settings.tls_client_ca) if trusted else ""
        return self._left

    def _stamps(self) -> list[int]:
        settings = self._settings
        files = [path for path in (settings.tls_cert, settings.tls_key, settings.tls_client_ca) if path is not None]
        return [_stamp(path) for path in files]


def identity(settings: Extender) -> Identity | None:
    """Return what HTTPS needs; None: plain HTTP is served.

    Raises:
        SettingsError: As `Identity`, or a setting lacks another one.
    """
    if settings.tls_cert is not None:
        return Identity(settings)
    for name, path in (("key", settings.tls_key), ("client-ca", settings.tls_client_ca)):
        if path is not None:
            raise SettingsError(
                [f"extender tls {name}: {path} is of no use without a certificate; name one with --extender-tls-cert"]
            )
    return None


def _context(settings: Extender) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    _load(context, settings)
    if settings.tls_client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _load(context: ssl.SSLContext, settings: Extender) -> None:
    certificate, key, clients = settings.tls_cert, settings.tls_key, settings.tls_client_ca
    assert certificate is not None
    for name, path in (("cert", certificate), ("key", key), ("client-ca", clients)):
        if path is not None:
            _readable(name, path)
    try:
        context.load_cert_chain(certificate, key, _no_password)
    except (OSError, ValueError) as error:
        raise SettingsError(
            [
                f"extender tls cert: {certificate} and {key or 'no key'} cannot be used: {_reason(error)}; both are "
                "PEM, the key belongs to the certificate and has no password"
            ]
        ) from None
    if clients is not None:
        try:
            context.load_verify_locations(clients)
        except (OSError, ValueError) as error:
            raise SettingsError(
                [f"extender tls client-ca: {clients} cannot be used: {_reason(error)}; it holds certificates in PEM"]
            ) from None


def _stamp(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:  # it is being replaced
        return 0


def _readable(name: str, path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise SettingsError(
            [f"extender tls {name}: {path} cannot be read: {error.strerror}; name a file with --extender-tls-{name}"]
        ) from None


def _no_password() -> str:
    """Keep OpenSSL from asking on the terminal."""
    raise ValueError("the key has a password")


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)
