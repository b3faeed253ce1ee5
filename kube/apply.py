"""Server-side apply: say what fields should be, and who says so; the API server changes those, and no others.

A field that its manager said before and says no more goes away, unless somebody else says it too. An apply that changes
nothing writes nothing: the object keeps its version. Source: Kubernetes, Server-Side Apply (KEP-555).
"""

from collections.abc import Mapping
from typing import Any

from kube.api import Api

MANAGER = "spazio"

_KIND = "application/apply-patch+yaml"  # JSON is YAML


async def apply(
    api: Api, path: str, thing: Mapping[str, Any], *, force: bool, timeout_seconds: float = 10
) -> dict[str, Any]:
    """Have the fields of an object be as in `thing`; makes the object if there is none.

    Args:
        api: Where.
        path: Path of the object or of its part, such as `/api/v1/nodes/n1/status`.
        thing: `apiVersion`, `kind`, `metadata.name` and the fields. With `metadata.resourceVersion`, only that version
            is changed.
        force: Take over fields that others manage; else they are a `Conflict` that names those others.
        timeout_seconds: For the whole answer.

    Returns:
        The object as it is then.

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
    """Tell whether an entry of an object's managedFields is of what we have applied."""
    return entry.get("manager") == MANAGER and entry.get("operation") == "Apply"
