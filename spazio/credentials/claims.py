"""Keys and signed claims (JWTs) as nats-server reads them.

A key is an Ed25519 key in the NATS form ("nkey"): its first letters say whose it is. Claims are signed by the key
above: operator, account, user. See https://docs.nats.io/running-a-nats-service/configuration/securing_nats/jwt.
"""

import base64
import hashlib
import json
import os
from typing import Any, NamedTuple

import nkeys  # type: ignore[import-untyped] # it has no type hints

from schemas.role import Grant

OPERATOR: int = nkeys.PREFIX_BYTE_OPERATOR
ACCOUNT: int = nkeys.PREFIX_BYTE_ACCOUNT
USER: int = nkeys.PREFIX_BYTE_USER

_HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}
_UNLIMITED = ("subs", "data", "payload", "imports", "exports", "conn", "leaf")
_STORAGE = ("mem_storage", "disk_storage", "streams", "consumer", "max_ack_pending")


class Key(NamedTuple):
    """A key pair: both halves in the NATS form."""

    public: str
    seed: str

    def sign(self, data: bytes) -> bytes:
        """Return the signature of data, 64 bytes."""
        signature: bytes = nkeys.from_seed(bytearray(self.seed.encode())).sign(data)
        return signature


class Limits(NamedTuple):
    """What one connection may take of the server; -1: no bound of its own.

    Attributes:
        subscriptions: Subscriptions at a time.
        payload_bytes: Largest message, with its headers.
    """

    subscriptions: int = -1
    payload_bytes: int = -1


UNBOUNDED = Limits()
# An agent has about five subscriptions, and the usage of 2,048 pods, the most that it reports, takes some 400 KiB.
NODE = Limits(subscriptions=16, payload_bytes=512 << 10)
REGION = Limits(payload_bytes=NODE.payload_bytes)  # it subscribes for all of its nodes


def new_key(kind: int) -> Key:
    """Make a key of an operator, account or user."""
    return key_of(nkeys.encode_seed(os.urandom(32), kind).decode())


def key_of(seed: str) -> Key:
    """Return the key pair of a seed.

    Raises:
        ValueError: The text is no seed.
    """
    try:
        public: bytes = nkeys.from_seed(bytearray(seed.encode())).public_key
    except Exception as error:  # the library has errors of its own for each fault
        raise ValueError("is no seed of a NATS key") from error
    return Key(public.decode().rstrip("="), seed)


def sign(issuer: Key, subject: str, name: str, body: dict[str, Any], at: int) -> str:
    """Return signed claims.

    Args:
        issuer: Key that signs: the one above the subject's, or its own for an operator.
        subject: Public key that the claims are about.
        name: Its name, for people.
        body: The claims.
        at: Time of issue, in seconds since the epoch.
    """
    claims = {"iat": at, "iss": issuer.public, "name": name, "sub": subject, "nats": {**body, "version": 2}}
    digest = hashlib.sha256(json.dumps(claims, sort_keys=True).encode()).digest()
    claims["jti"] = base64.b32encode(digest).decode().rstrip("=")
    signed = f"{_encode(json.dumps(_HEADER).encode())}.{_encode(json.dumps(claims).encode())}"
    return f"{signed}.{_encode(issuer.sign(signed.encode()))}"


def read(jwt: str) -> dict[str, Any]:
    """Return the claims of a JWT, without checking its signature; empty: it has none."""
    try:
        part = jwt.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, IndexError):
        return {}
    return claims if isinstance(claims, dict) else {}


def operator(system: str) -> dict[str, Any]:
    """Return the claims of an operator whose system account has a public key."""
    return {"type": "operator", "system_account": system}


def account(
    *, storage: bool = False, payload_bytes: int = -1, revoked: dict[str, int] | None = None, **more: Any
) -> dict[str, Any]:
    """Return the claims of an account without other limits than that of messages.

    Args:
        storage: It has streams.
        payload_bytes: Largest message of any of its connections; -1: as the server says.
        revoked: For each public key of a user, the time up to which its credentials are revoked.
        **more: Its `exports` and `imports`.
    """
    limits: dict[str, Any] = dict.fromkeys((*_UNLIMITED, *(_STORAGE if storage else ())), -1) | {"wildcards": True}
    limits["payload"] = payload_bytes
    body: dict[str, Any] = {"type": "account", "limits": limits, **more}
    return body | ({"revocations": revoked} if revoked else {})


def user(grant: Grant, limits: Limits = UNBOUNDED) -> dict[str, Any]:
    """Return the claims of a user who may do exactly what is granted, within limits."""
    allowed = {"pub": {"allow": list(grant.publish)}, "sub": {"allow": list(grant.subscribe)}}
    bounds = {"subs": limits.subscriptions, "data": -1, "payload": limits.payload_bytes}
    return {"type": "user", **bounds, **allowed}


def credential(jwt: str, seed: str) -> str:
    """Return the text of a `.creds` file."""
    return (
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        "This file is the user's key: keep it secret.\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
