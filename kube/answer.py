"""What the API server says when it says no, and what can be done about it."""

import json
from collections.abc import Mapping
from typing import Any

_LONGEST_PAUSE = 60.0


class Trouble(Exception):
    """A request failed in a way that may pass.

    Attributes:
        reason: What is wrong and how to mend it, for people.
        pause_seconds: How long the server asks us to wait; None: it does not say.
        lasting: Whether waiting alone will hardly help.
    """

    lasting = False

    def __init__(self, reason: str, pause_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.reason, self.pause_seconds = reason, pause_seconds


class Away(Trouble):
    """The server cannot be reached, breaks off, or has no time; our version is as good as before."""


class Gone(Trouble):
    """The version asked for has been compacted away; only a new list helps."""


class Unknown(Trouble):
    """The server does not know who we are: credentials must be read again."""

    lasting = True


class Forbidden(Trouble):
    """The server knows who we are, and refuses."""

    lasting = True


def trouble(status: int, body: bytes, headers: Mapping[str, str], verb: str, resource: str) -> Trouble:
    """Return what an answer other than 200 means.

    Args:
        status: HTTP status.
        body: What came with it, mostly a `Status` object.
        headers: Header fields of the answer.
        verb: What was asked for, as RBAC calls it.
        resource: Of what.
    """
    return _trouble(status, _message(body), _pause(headers), verb, resource)


def said(status: Mapping[str, Any], verb: str, resource: str) -> Trouble:
    """Return what a `Status` object in the middle of a watch means."""
    code = status.get("code")
    return _trouble(code if isinstance(code, int) else 0, str(status.get("message", ""))[:500], None, verb, resource)


def _trouble(status: int, message: str, pause: float | None, verb: str, resource: str) -> Trouble:
    if status == 410:
        return Gone(f"{verb} {resource}: {message or 'version is gone'}", pause)
    if status == 401:
        return Unknown(
            f"{verb} {resource}: the API server does not accept our credentials ({message or 'no reason given'}); "
            "renew the token or certificate in the kubeconfig, or see that the pod has a service account",
            pause,
        )
    if status == 403:
        return Forbidden(
            f"{verb} {resource}: {message or 'forbidden'}; bind a ClusterRole with the verbs list and watch on nodes "
            f"and pods to this user: `kubectl auth can-i {verb} {resource} --all-namespaces` must say yes",
            pause,
        )
    kind = Away if status in (429, 503) else Trouble
    return kind(f"{verb} {resource}: the API server answers {status}: {message or 'no reason given'}", pause)


def _message(body: bytes) -> str:
    try:
        content = json.loads(body)
        return str(content["message"])[:500]
    except (ValueError, KeyError, TypeError, RecursionError):
        return body[:200].decode(errors="replace").strip()


def _pause(headers: Mapping[str, str]) -> float | None:
    """Return `Retry-After` in seconds; its other form, a date, is as good as none."""
    text = headers.get("Retry-After", "")
    return min(float(text), _LONGEST_PAUSE) if text.isascii() and text.isdigit() else None
