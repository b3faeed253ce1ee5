"""The rights that deploy/kubernetes gives to each component, and how tests take one of them away."""

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.e2e.kubernetes.control_plane import ControlPlane, Kubectl
from tests.e2e.kubernetes.output.writing import documents, path_of, put, until

MANIFESTS = ("rbac.yaml", "optional/rbac-bind.yaml", "optional/rbac-full.yaml")
ROLES = ("ClusterRole", "Role")
LEASE = "/apis/coordination.k8s.io/v1/namespaces/spazio/leases/spazio-full"
SPACE = "spazio"


class Rule(NamedTuple):
    """One verb on one resource, of objects of this name; empty: of all objects."""

    role: tuple[str, str]
    group: str
    resource: str
    verb: str
    name: str = ""


def roles() -> dict[tuple[str, str], dict[str, Any]]:
    """Return the roles by kind and name."""
    things = [thing for name in MANIFESTS for thing in documents(name)]
    return {(thing["kind"], thing["metadata"]["name"]): thing for thing in things if thing["kind"] in ROLES}


def rules() -> list[Rule]:
    return [
        Rule(key, group, resource, verb, name)
        for key, role in roles().items()
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", ("",))
    ]


def without(lacking: Rule) -> dict[str, Any]:
    """Return a role that lacks one rule."""
    role = copy.deepcopy(roles()[lacking.role])
    role["rules"] = [
        {"apiGroups": [rule.group], "resources": [rule.resource], "verbs": [rule.verb]}
        | ({"resourceNames": [rule.name]} if rule.name else {})
        for rule in rules()
        if rule.role == lacking.role and rule != lacking
    ]
    return role


async def kubeconfig(plane: ControlPlane, kubectl: Kubectl, account: str, space: str = SPACE) -> Path:
    """Return a kubeconfig with a token of a ServiceAccount, as a pod of it has one."""
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    path = f"/api/v1/namespaces/{space}/serviceaccounts/{account}/token"
    token = (await kubectl.call("POST", path, request))["status"]["token"]
    written = plane.kubeconfig(token="account")
    written.write_text(written.read_text().replace('"account"', f'"{token}"'))
    return written


async def allowed(kubectl: Kubectl, rule: Rule, account: str) -> bool:
    """Tell whether the API server has taken notice of a role."""
    resource, _, part = rule.resource.partition("/")
    asked = {"verb": rule.verb, "group": rule.group, "resource": resource, "subresource": part, "name": rule.name}
    if rule.role[0] == "Role":
        asked["namespace"] = SPACE
    user = f"system:serviceaccount:{SPACE}:{account}"
    spec = {"user": user, "groups": ["system:authenticated"], "resourceAttributes": asked}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    answered = await kubectl.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answered["status"]["allowed"])


@asynccontextmanager
async def lacking(kubectl: Kubectl, rule: Rule, account: str) -> AsyncIterator[None]:
    """Take a rule away for the length of a block."""

    async def gone() -> bool:
        return not await allowed(kubectl, rule, account)

    async def back() -> bool:
        return await allowed(kubectl, rule, account)

    role = without(rule)
    await kubectl.call("PUT", path_of(role), role)
    await until(gone)
    try:
        yield
    finally:
        await put(kubectl, roles()[rule.role])
        await until(back)


def account_of(role: str) -> str:
    return role.removesuffix("-bind").removesuffix("-full")


def named(rule: Rule) -> str:
    return f"{rule.resource}.{rule.group}" if rule.group else rule.resource
