"""Reads a web configuration in Prometheus' format (exporter-toolkit's `web.yml`).

It has `tls_server_config` (HTTPS, optionally with client certificates) and `basic_auth_users` (names, bcrypt hashes).
Keys of the format that this server does not have are refused by name, since a security setting that silently does
nothing is worse than none. Relative paths are relative to the folder of the file, as in Prometheus.
"""

import importlib
import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from bus.access import trust
from schemas.settings import SettingsError
from spazio import document

_SECTIONS = ("tls_server_config", "basic_auth_users")
_TLS_KEYS = ("cert_file", "key_file", "client_auth_type", "client_ca_file", "min_version")
_CLIENTS = ("NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert")
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_HASH = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")
_MOST_BYTES = 1 << 20
_LONGEST_COST = 16  # a check takes four seconds; each more doubles it


@dataclass(frozen=True, slots=True)
class Tls:
    """The section `tls_server_config`.

    Attributes:
        cert: Certificate file.
        key: File of its private key.
        client_ca: Authorities of client certificates; None: none is asked for.
        required: A page with data needs a client certificate.
        minimum: Oldest version of TLS that is spoken.
    """

    cert: Path
    key: Path
    client_ca: Path | None
    required: bool
    minimum: ssl.TLSVersion


@dataclass(frozen=True, slots=True)
class WebConfig:
    """A web configuration.

    Attributes:
        tls: HTTPS; None: plain HTTP.
        users: bcrypt hashes by user; empty: no password is needed.
        files: Every file that it consists of.
    """

    tls: Tls | None
    users: Mapping[str, bytes]
    files: tuple[Path, ...]


def read(path: Path) -> WebConfig:
    """Return the configuration in a file.

    Raises:
        SettingsError: It cannot be read or used; the message lists all faults, with what to do.
    """
    content, faults = _content(path), list[str]()
    faults += _unknown(content, _SECTIONS, "")
    tls = _tls(content.get("tls_server_config"), path.parent, faults)
    users = _users(content.get("basic_auth_users"), faults)
    if faults:
        raise SettingsError([f"http config-file: {path}: {fault}" for fault in faults])
    if users:
        package("bcrypt")
    files = (path, *((tls.cert, tls.key) if tls else ()), *((tls.client_ca,) if tls and tls.client_ca else ()))
    return WebConfig(tls, users, files)


def package(name: str) -> ModuleType:
    """Return a package that only web configurations need.

    Raises:
        SettingsError: It is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        raise SettingsError(
            [f"http config-file: the Python package {name} is needed for it: pip install '.[web]' in a checkout"]
        ) from None


def context(tls: Tls) -> ssl.SSLContext:
    """Return a server's TLS context.

    A client certificate is asked for but not required here, since health pages are served without one.

    Raises:
        SettingsError: A file cannot be used.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = tls.minimum
    try:
        made.load_cert_chain(tls.cert, tls.key, trust.no_password)
    except (OSError, ValueError) as error:
        raise SettingsError(
            [
                f"http config-file: {tls.cert} and {tls.key} cannot be used: {_reason(error)}; both are PEM, the key "
                "belongs to the certificate and has no password"
            ]
        ) from None
    if tls.client_ca is not None:
        try:
            made.load_verify_locations(tls.client_ca)
        except (OSError, ValueError) as error:
            raise SettingsError(
                [f"http config-file: {tls.client_ca} cannot be used: {_reason(error)}; it holds certificates in PEM"]
            ) from None
        made.verify_mode = ssl.CERT_OPTIONAL
    return made


def _content(path: Path) -> dict[str, Any]:
    package("yaml")
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES)
        (content,) = [each.content for each in document.read_all(text.decode())] or [None]
    except OSError as error:
        raise SettingsError(
            [f"http config-file: {path} cannot be read: {error.strerror}; name a file with --http-config-file"]
        ) from None
    except ValueError as error:
        raise SettingsError([f"http config-file: {path} is not YAML of one document: {error}"]) from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsError([f"http config-file: {path} holds no mapping of {' and '.join(_SECTIONS)}"])
    return content


def _unknown(section: Mapping[Any, Any], allowed: tuple[str, ...], name: str) -> Iterator[str]:
    for key in section:
        if key not in allowed:
            yield f"{name}{key!s} is unknown here; known are {', '.join(allowed)}"


def _tls(section: Any, folder: Path, faults: list[str]) -> Tls | None:
    if section is None:
        return None
    if not isinstance(section, dict):
        faults.append("tls_server_config is no mapping")
        return None
    faults += _unknown(section, _TLS_KEYS, "tls_server_config.")
    files = {name: _file(section, name, folder, faults) for name in ("cert_file", "key_file", "client_ca_file")}
    clients, version = section.get("client_auth_type") or _CLIENTS[0], section.get("min_version") or "TLS12"
    if clients not in _CLIENTS:
        faults.append(f"tls_server_config.client_auth_type: {clients!r} is none of {', '.join(_CLIENTS)}")
    if version not in _VERSIONS:
        faults.append(f"tls_server_config.min_version: {version!r} is none of {', '.join(_VERSIONS)}")
    authority = files["client_ca_file"]
    if (authority is None) != (clients == _CLIENTS[0]):
        faults.append(f"tls_server_config: client_ca_file and a client_auth_type other than {_CLIENTS[0]} go together")
    for name in ("cert_file", "key_file"):
        if files[name] is None:
            faults.append(f"tls_server_config.{name} is missing")
    cert, key = files["cert_file"], files["key_file"]
    if faults or cert is None or key is None:
        return None
    return Tls(cert, key, authority, clients == _CLIENTS[2], _VERSIONS[version])


def _file(section: Mapping[str, Any], name: str, folder: Path, faults: list[str]) -> Path | None:
    value = section.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str) or "\0" in value:
        faults.append(f"tls_server_config.{name} is no path")
        return None
    return folder / value


def _users(section: Any, faults: list[str]) -> dict[str, bytes]:
    if section is None:
        return {}
    if not isinstance(section, dict):
        faults.append("basic_auth_users is no mapping of names to bcrypt hashes")
        return {}
    users = {}
    for name, hashed in section.items():
        match = _HASH.fullmatch(hashed) if isinstance(hashed, str) else None
        if not isinstance(name, str) or not name or ":" in name:
            faults.append(f"basic_auth_users: {name!r} is no name: text without a colon")
        elif match is None or not 4 <= int(match[1]) <= _LONGEST_COST:
            faults.append(
                f"basic_auth_users.{name} is no bcrypt hash with a cost of 4 to {_LONGEST_COST}; make one with "
                "`htpasswd -nBC 10 NAME`"
            )
        else:
            users[name] = hashed.encode()
    return users


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
