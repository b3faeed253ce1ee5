"""Server-side apply: sends the wanted fields and their manager; the API server changes these fields and no others.

A field that its manager leaves out is removed, unless another manager has it, too. An apply without changes writes
nothing, and the object keeps its version. Source: Kubernetes, Server-Side Apply (KEP-555).
"""

from collections.abc import Mapping
from typing import Any

from kube.api import Api

MANAGER = "spazio"

_KIND = "application/apply-patch+yaml"  # JSON is YAML


async def apply(
    api: Api, path: str, thing: Mapping[str, Any], *, force: bool, timeout_seconds: float = 10
) -> dict[str, Any]:
    """Apply the fields of `thing` to an object; create the object if it does not exist.

    Args:
        api: The API server.
        path: Path of the object or of its part, such as `/api/v1/nodes/n1/status`.
        thing: `apiVersion`, `kind`, `metadata.name` and the fields. With `metadata.resourceVersion`, only that version
            is changed.
        force: Take over fields that others manage; else they are a `Conflict` that names those others.
        timeout_seconds: For the whole answer.

    Returns:
        The new state of the object.

    Raises:
        Trouble: As `Api.send`.
    """
    query = {"fieldManager": MANAGER, "force": "true" if force else "false"}
    return await api.send("PATCH", path, thing, query=query, kind=_KIND, timeout_seconds=timeout_seconds)


def owns(thing: Mapping[str, Any], subresource: str, *path: str) -> bool:
    """Tell whether we have applied a field of an object.

    Args:
        thing: The object, with `metadata.managedFields`.
        subresource: Through which part it was applied; empty: the object itself.
        path: Names of the fields that lead to it.
    """
    for entry in thing["metadata"].get("managedFields") or ():
        if is_ours(entry) and (entry.get("subresource") or "") == subresource:
            fields: Any = entry.get("fieldsV1") or {}
            for name in path:
                fields = fields.get(f"f:{name}") if isinstance(fields, dict) else None
            if fields is not None:
                return True
    return False


def is_ours(entry: Mapping[str, Any]) -> bool:
    """Tell whether an entry of an object's managedFields is ours."""
    return entry.get("manager") == MANAGER and entry.get("operation") == "Apply"
