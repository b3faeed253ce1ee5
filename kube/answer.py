"""Failures of API requests, and what users can do about them."""

import json
import re
from collections.abc import Mapping
from typing import Any

_LONGEST_PAUSE = 60.0
_LONGEST_MESSAGE = 500
_LACKING = re.compile(r" cannot ([a-z]+) resource ")


class Trouble(Exception):
    """A request failed in a way that may pass.

    Attributes:
        reason: The problem and its solution, for people.
        pause_seconds: Pause that the server asks for; None: it does not.
        lasting: Whether waiting alone will hardly help.
    """

    lasting = False

    def __init__(self, reason: str, pause_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.reason, self.pause_seconds = reason, pause_seconds


class Away(Trouble):
    """The server is unreachable, overloaded, or broke the connection; our resource version stays valid."""


class Gone(Trouble):
    """The requested version is compacted; only a new list helps."""


class Unknown(Trouble):
    """The server rejects our credentials; they must be read again."""

    lasting = True


class Forbidden(Trouble):
    """We have no permission for the request."""

    lasting = True


class Missing(Trouble):
    """The object does not exist yet or any more."""


class Unserved(Missing):
    """The server knows no such kind of object: its CustomResourceDefinition is not there."""

    lasting = True


class Conflict(Trouble):
    """The object has another version than the one that the request is about, or exists already; or a field is others'.

    Attributes:
        managers: Who manages a field that the request would change; empty: the version is another.
    """

    def __init__(self, reason: str, pause_seconds: float | None = None, managers: tuple[str, ...] = ()) -> None:
        super().__init__(reason, pause_seconds)
        self.managers = managers


class Invalid(Trouble):
    """The server rejects the request as invalid."""

    lasting = True


def trouble(status: int, body: bytes, headers: Mapping[str, str], verb: str, resource: str) -> Trouble:
    """Return the trouble that an unsuccessful answer means.

    Args:
        status: HTTP status.
        body: What came with it, mostly a `Status` object.
        headers: Header fields of the answer.
        verb: What was asked for, as RBAC calls it.
        resource: Of what, as RBAC calls it: `nodes`, `nodes/status`, `horizontalpodautoscalers.autoscaling`.
    """
    try:
        content = json.loads(body)
        status_object = content if isinstance(content, dict) else {}
    except (ValueError, RecursionError):
        status_object = {}
    if not isinstance(status_object.get("message"), str):
        status_object = {**status_object, "message": body[:200].decode(errors="replace").strip()}
    return _trouble(status, status_object, _pause(headers), verb, resource)


def of_status(status: Mapping[str, Any], verb: str, resource: str) -> Trouble:
    """Return the trouble that a `Status` object within a watch means."""
    code = status.get("code")
    return _trouble(code if isinstance(code, int) else 0, status, None, verb, resource)


def _trouble(code: int, status: Mapping[str, Any], pause: float | None, verb: str, resource: str) -> Trouble:
    message = str(status.get("message") or "")[:_LONGEST_MESSAGE]
    what, reason = f"{verb} {resource}", message or "no reason given"
    result: Trouble
    match code:
        case 401:
            result = Unknown(
                f"{what}: the API server does not accept our credentials ({reason}); "
                "renew the token or certificate in the kubeconfig, or see that the pod has a service account",
                pause,
            )
        case 403:
            # A patch may turn out to need another verb, such as create for what is not there.
            lacking = _LACKING.search(message)
            verb = lacking[1] if lacking else verb
            result = Forbidden(
                f"{what}: {message or 'forbidden'}; bind a ClusterRole with the {_verbs(verb)} on {resource} to this "
                f"user: `kubectl auth can-i {verb} {_asked(resource)} --all-namespaces` must say yes",
                pause,
            )
        case 404:
            result = _missing(f"{what}: {reason}", status, pause)
        case 409:
            result = Conflict(f"{what}: {message or 'conflict'}", pause, _managers(status))
        case 410:
            result = Gone(f"{what}: {message or 'version is gone'}", pause)
        case 400 | 422:
            result = Invalid(f"{what}: the API server refuses the request: {reason}", pause)
        case 429 | 503:
            result = Away(f"{what}: the API server answers {code}: {reason}", pause)
        case _:
            result = Trouble(f"{what}: the API server answers {code}: {reason}", pause)
    return result


def _missing(text: str, status: Mapping[str, Any], pause: float | None) -> Missing:
    """Distinguish a missing object, which the server names, from an unknown kind of object."""
    details = status.get("details")
    if isinstance(details, dict) and details.get("name"):
        return Missing(text, pause)
    return Unserved(f"{text}; the API server knows no such objects: apply their CustomResourceDefinition", pause)


def _managers(status: Mapping[str, Any]) -> tuple[str, ...]:
    """Return who manages the fields in conflict, as the server quotes them."""
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    result = {
        str(cause.get("message", "")).partition('"')[2].partition('"')[0]
        for cause in (causes if isinstance(causes, list) else ())
        if isinstance(cause, dict) and cause.get("reason") == "FieldManagerConflict"
    }
    return tuple(sorted(result))


def _verbs(verb: str) -> str:
    return "verbs list and watch" if verb in ("list", "watch") else f"verb {verb}"


def _asked(resource: str) -> str:
    name, _, part = resource.partition("/")
    return f"{name} --subresource={part}" if part else name


def _pause(headers: Mapping[str, str]) -> float | None:
    """Return `Retry-After` in seconds; its other form, a date, is as good as none."""
    text = headers.get("Retry-After", "")
    return min(float(text), _LONGEST_PAUSE) if text.isascii() and text.isdigit() else None


def resource_of(path: str) -> str:
    """Return the resource that a path is about, as RBAC calls it.

    >>> resource_of("/api/v1/nodes/n1/status"), resource_of("/api/v1/namespaces/shop/pods/web/binding")
    ('nodes/status', 'pods/binding')
    >>> resource_of("/apis/autoscaling/v2/horizontalpodautoscalers"), resource_of("/api/v1/namespaces/shop")
    ('horizontalpodautoscalers.autoscaling', 'namespaces')
    """
    parts = path.strip("/").split("/")
    group = parts[1] if parts[0] == "apis" else ""
    parts = parts[3:] if group else parts[2:]
    if parts[0] == "namespaces" and len(parts) > 2:
        parts = parts[2:]
    name = f"{parts[0]}.{group}" if group else parts[0]
    return f"{name}/{parts[2]}" if len(parts) > 2 else name


def described(error: Exception) -> Any:
    """Return what went wrong with a connection, in words."""
    if isinstance(error, TimeoutError):
        return "nothing has come in time"
    return error if str(error) else repr(error)
