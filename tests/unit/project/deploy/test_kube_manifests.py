"""The manifests are hardened, agree with each other, and with what they are made from."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from kube import node
from processors.prediction.tier import priority
from processors.prediction.tier.priority import Priority
from schemas import role
from schemas import settings as all_settings
from schemas.messages.base import RELEASE
from spazio.credentials import kubernetes, node_secret

ROOT = Path(__file__).parents[4]
MANIFESTS = ROOT / "deploy" / "kubernetes"
EXAMPLES = MANIFESTS / "examples"  # workloads of users, but for the backup
FILES = sorted(set(MANIFESTS.rglob("*.yaml")) - set(EXAMPLES.iterdir()) | {EXAMPLES / "backup.yaml"})
THINGS = [(path.name, thing) for path in FILES for thing in yaml.safe_load_all(path.read_text()) if thing]
WORKLOADS: dict[str, dict[str, Any]] = {
    thing["metadata"]["name"].removeprefix("spazio-"): thing
    for _, thing in THINGS
    if "template" in (thing.get("spec") or {})
}
BACKUP = "backup"  # a Job: nothing asks it
GOVERN = "govern"  # the one exception: optional, and it writes cgroups, whose files are root's
PODS: dict[str, dict[str, Any]] = {name: thing["spec"]["template"]["spec"] for name, thing in WORKLOADS.items()}


def things(kind: str) -> list[dict[str, Any]]:
    return [thing for _, thing in THINGS if thing["kind"] == kind]


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all containers of a pod, those that run before the others first."""
    return [*pod.get("initContainers", ()), *pod["containers"]]


@pytest.mark.parametrize("name", PODS)
def test_no_pod_can_do_more_than_its_work(name: str) -> None:
    pod = PODS[name]
    assert pod["enableServiceLinks"] is False  # a Service called spazio-nats would set SPAZIO_NATS_PORT
    assert pod["securityContext"]["runAsNonRoot"] is (name != GOVERN)
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux"}  # the agent and the governor tolerate all taints
    # The token of the agent is for its init container alone.
    assert pod["automountServiceAccountToken"] is (pod["serviceAccountName"] not in ("spazio-none", "spazio-agent"))
    (container,) = pod["containers"]
    for each in containers(pod):
        own = each["securityContext"]
        assert (own["allowPrivilegeEscalation"], own["readOnlyRootFilesystem"]) == (False, True)
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert {"cpu", "memory"} <= each["resources"]["requests"].keys()
    assert name == BACKUP or {"readinessProbe", "livenessProbe", "startupProbe"} <= container.keys()
    hosts = {volume["name"] for volume in pod["volumes"] if "hostPath" in volume}
    written = {mount["name"] for mount in container["volumeMounts"] if not mount.get("readOnly")} & hosts
    assert written == ({"cgroup", "journal"} if name == GOVERN else set())


def test_every_account_and_volume_and_setting_that_is_named_is_there() -> None:
    accounts = {each["metadata"]["name"] for each in things("ServiceAccount")}
    assert {pod["serviceAccountName"] for pod in PODS.values()} == accounts
    homes = {(each["metadata"]["namespace"], each["metadata"]["name"]) for each in things("ServiceAccount")}
    spaces = {name: thing["metadata"]["namespace"] for name, thing in WORKLOADS.items()}
    assert {(spaces[name], pod["serviceAccountName"]) for name, pod in PODS.items()} == homes
    bindings = things("ClusterRoleBinding") + things("RoleBinding")
    bound = {subject["name"] for each in bindings for subject in each["subjects"]}
    assert bound == accounts - {"spazio-none"}
    every = [container for pod in PODS.values() for container in containers(pod)]
    images = {container["image"] for container in every if container["image"].startswith("spazio")}
    assert {image.partition(":")[2] for image in images} == {RELEASE}
    settings, same = (each["data"] for each in things("ConfigMap") if each["metadata"]["name"] == "spazio")
    assert settings.items() - same.items() == {("SPAZIO_HISTORY_MAX_BYTES", str((20 << 30) * 8 // 10))}
    assert same.items() <= settings.items()  # of the agents' namespace
    named = {entry["name"] for container in every for entry in container.get("env", ())}
    fields = {
        f"SPAZIO_{all_settings.option_name(section, field).upper()}" for section, field, _ in all_settings.options()
    }
    assert named | settings.keys() <= {name.replace("-", "_") for name in fields}


def test_the_priorities_of_the_examples_are_those_of_their_tiers() -> None:
    examples = [yaml.safe_load_all(path.read_text()) for path in sorted(EXAMPLES.iterdir())]
    classes = {
        thing["metadata"]["name"].removeprefix("spazio-"): priority.of({}, thing["value"], None)
        for things_of_one in examples
        for thing in things_of_one
        if thing["kind"] == "PriorityClass"
    }
    assert classes == {"prod": Priority.PROD, "mid": Priority.MID, "batch": Priority.BATCH}


def test_every_image_has_a_version() -> None:
    images = [container["image"] for pod in PODS.values() for container in containers(pod)]
    images += re.findall(r"image: (?:&\w+ )?(?:\$\{\w+:-)?([^\s}]+)", (ROOT / "docker-compose.yml").read_text())
    assert len(images) > len(PODS)
    for image in images:
        version = image.rpartition("@")[2].rpartition(":")[2]
        assert image.startswith("*") or re.match(r"sha256|[0-9]+\.[0-9]+", version), image


def test_the_server_is_configured_as_the_one_of_the_stack() -> None:
    (deployed,) = (
        thing["data"]["spazio.conf"] for thing in things("ConfigMap") if thing["metadata"]["name"] != "spazio"
    )

    def shared(text: str) -> set[str]:
        stripped = {line.strip() for line in text.splitlines()}
        own = ("#", "server_name", "http")
        return {line for line in stripped if line and not line.startswith(own)}

    assert shared(deployed) == shared((ROOT / "deploy" / "nats.conf").read_text())


def test_clients_speak_tls_and_recognize_the_server_by_what_is_in_their_secret() -> None:
    for settings in (thing["data"] for thing in things("ConfigMap") if thing["metadata"]["name"] == "spazio"):
        assert settings["SPAZIO_NATS_URL"].startswith("tls://spazio-nats.spazio.svc:")
        folder = settings["SPAZIO_NATS_CREDENTIALS"].removesuffix(f"/{node_secret.CREDENTIAL}")
        assert settings["SPAZIO_NATS_CA"] == f"{folder}/{node_secret.AUTHORITY}"
    (server,) = (volume for volume in PODS["nats"]["volumes"] if "projected" in volume)
    (secret,) = (source["secret"] for source in server["projected"]["sources"] if "secret" in source)
    assert (secret["name"], {item["key"] for item in secret["items"]}) == (kubernetes.TLS, set(kubernetes.CERTIFICATE))
    assert {item["mode"] for item in secret["items"]} == {0o440}


def test_only_the_agents_and_the_governor_have_a_privileged_namespace() -> None:
    levels = {
        each["metadata"]["name"]: each["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        for each in things("Namespace")
    }
    assert levels == {"spazio": "restricted", "spazio-agents": "privileged"}
    spaces = {name: thing["metadata"]["namespace"] for name, thing in WORKLOADS.items()}
    assert {name for name, space in spaces.items() if space == "spazio-agents"} == {"agent", GOVERN}
    assert set(spaces.values()) == levels.keys()
    hosts = {name for name, pod in PODS.items() if any("hostPath" in volume for volume in pod["volumes"])}
    assert hosts == {"agent", GOVERN}


def test_the_governor_is_applied_only_by_name() -> None:
    files = {name for name, thing in THINGS if thing["metadata"]["name"].startswith("spazio-govern")}
    assert len(files) == 2, "the governor, and its right to evict"
    assert not any((MANIFESTS / file).exists() for file in files)
    rules = [thing["rules"] for thing in things("ClusterRole") if thing["metadata"]["name"] == "spazio-govern"]
    assert rules == [[{"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]}]]
    (admitted,) = (thing for thing in things("NetworkPolicy") if thing["metadata"]["name"] == "spazio-govern-bus")
    ((peer,),) = (rule["from"] for rule in admitted["spec"]["ingress"])
    assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "spazio-agents"}
    assert peer["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "spazio-govern"}


@pytest.mark.parametrize("name", PODS)
def test_each_workload_mounts_its_own_secret_and_no_other(name: str) -> None:
    (container,) = PODS[name]["containers"]
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    secrets = {volume["name"]: volume["secret"] for volume in PODS[name]["volumes"] if "secret" in volume}
    assert not [thing for thing in container.get("env", ()) if "secretKeyRef" in thing.get("valueFrom", {})]
    (settings, _) = (thing["data"] for thing in things("ConfigMap") if thing["metadata"]["name"] == "spazio")
    if name in ("nats", "agent"):
        # The server knows public keys only; the agent has what its init container took.
        assert secrets == {}
        return
    own = role.ADMIN if name == BACKUP else name
    assert secrets["credentials"] == {"secretName": f"spazio-{own}-credentials", "defaultMode": 0o440}
    assert set(secrets) == {"credentials"} | ({"tls"} if name in ("extender", "kubernetes") else set())
    assert [volume for volume, secret in secrets.items() if "optional" in secret] == ["tls"] * (name == "kubernetes")
    assert PODS[name]["securityContext"]["fsGroup"] == 10001  # without it the file is root's alone
    assert PODS[name]["securityContext"]["runAsUser"] != PODS["agent"]["securityContext"]["runAsUser"]
    mount = mounts["credentials"]
    assert mount["readOnly"] is True
    assert f"{mount['mountPath']}/nats.creds" == settings["SPAZIO_NATS_CREDENTIALS"]


def test_the_agent_sees_the_credential_of_its_node_and_no_token_and_its_init_container_both() -> None:
    pod = PODS["agent"]
    first, agent = containers(pod)
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    (settings, _) = (thing["data"] for thing in things("ConfigMap") if thing["metadata"]["name"] == "spazio")
    assert volumes["credentials"]["emptyDir"]["medium"] == "Memory"  # no disk has it
    mounts = {mount["name"]: mount for mount in agent["volumeMounts"]}
    assert {"token"} == {name for name, volume in volumes.items() if "projected" in volume}
    assert "token" not in mounts
    assert mounts["credentials"]["readOnly"] is True
    folder = mounts["credentials"]["mountPath"]
    assert f"{folder}/{node_secret.CREDENTIAL}" == settings["SPAZIO_NATS_CREDENTIALS"]
    assert first["command"][1:] == ["-m", node_secret.__name__, folder]
    assert {mount["name"]: mount["mountPath"] for mount in first["volumeMounts"]} == {
        "credentials": folder,
        "token": str(node_secret.ACCOUNT),
    }
    assert first["image"] == agent["image"]
    sources = volumes["token"]["projected"]["sources"]
    files = {item["path"] for source in sources for each in source.values() for item in each.get("items", [each])}
    assert files == {"token", "ca.crt", "namespace"}


def policies() -> dict[str, dict[str, Any]]:
    """Return the policy of each workload by its name; checks that each chooses pods of its own namespace by name."""
    result = {}
    for thing in things("NetworkPolicy"):
        chosen = thing["spec"]["podSelector"]
        if chosen and thing["metadata"]["name"] != "spazio-govern-bus":  # adds to the policy of the server
            name = chosen["matchLabels"]["app.kubernetes.io/name"].removeprefix("spazio-")
            assert thing["metadata"]["namespace"] == WORKLOADS[name]["metadata"]["namespace"]
            result[name] = thing["spec"]
    return result


def test_nothing_is_reachable_unless_a_policy_says_so() -> None:
    closed = [each for each in things("NetworkPolicy") if not each["spec"]["podSelector"]]
    assert {each["metadata"]["namespace"] for each in closed} == {
        each["metadata"]["name"] for each in things("Namespace")
    }
    for each in closed:
        assert each["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


def ports(rules: list[dict[str, Any]]) -> set[int]:
    return {entry["port"] for rule in rules for entry in rule["ports"]}


@pytest.mark.parametrize("name", PODS)
def test_each_workload_is_reached_by_and_reaches_what_it_needs(name: str) -> None:
    policy = policies()[name]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    ingress, egress = policy.get("ingress", []), policy.get("egress", [])
    for rule in (*ingress, *egress):
        assert rule.get("from") or rule.get("to")  # an empty list means everybody
        assert rule["ports"]
    if name == "nats":
        assert (ports(ingress), egress) == ({4222}, [])
        workload, agents = ingress[0]["from"]
        assert set(workload) == {"podSelector"}  # of this namespace
        for other, thing in WORKLOADS.items():
            labels = thing["spec"]["template"]["metadata"]["labels"]
            chosen = agents if other == "agent" else workload
            assert chosen["podSelector"]["matchLabels"].items() <= labels.items()
        return
    speaks = PODS[name]["serviceAccountName"] != "spazio-none"
    assert ports(egress) == {4222, 53} | ({443, 6443} if speaks else set())
    assert ports(ingress) == {BACKUP: set(), "extender": {8800, 9470}}.get(name, {9470})
    wide = [peer for rule in (*ingress, *egress) for peer in rule.get("from", rule.get("to")) if "ipBlock" in peer]
    # Your control plane, and the DNS cache of a node.
    assert {peer["ipBlock"]["cidr"] for peer in wide} <= {"192.0.2.1/32", "169.254.20.10/32"}
    (bus,) = (rule["to"][0] for rule in egress if rule["ports"] == [{"port": 4222}])
    assert bus["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "spazio"}
    assert bus["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "spazio-nats"}


def test_the_rights_to_patch_and_to_request_tokens_are_narrowed_by_admission() -> None:
    wide = {
        role["metadata"]["name"]
        for role in things("ClusterRole") + things("Role")
        for rule in role["rules"]
        if ("patch" in rule["verbs"] and rule["apiGroups"] != ["spazio.io"])
        or "serviceaccounts/token" in rule["resources"]
    }
    policies = {thing["metadata"]["name"]: thing["spec"] for thing in things("ValidatingAdmissionPolicy")}
    bindings = {thing["spec"]["policyName"]: thing["spec"] for thing in things("ValidatingAdmissionPolicyBinding")}
    assert policies.keys() == bindings.keys()
    assert all(thing["failurePolicy"] == "Fail" for thing in policies.values())
    assert all(thing["validationActions"] == ["Deny"] for thing in bindings.values())
    conditions = " ".join(
        thing["expression"] for spec in policies.values() for thing in spec.get("matchConditions", ())
    )
    assert wide == {"spazio-agent", "spazio-extender", "spazio-kubernetes", "spazio-kubernetes-full"}
    accounts = {
        (binding["subjects"][0]["namespace"], binding["subjects"][0]["name"])
        for binding in things("ClusterRoleBinding") + things("RoleBinding")
        if binding["roleRef"]["name"] in wide
    }
    assert {name for _, name in accounts} == {"spazio-agent", "spazio-extender", "spazio-kubernetes"}
    assert all(f'"system:serviceaccount:{space}:{name}"' in conditions for space, name in accounts)


def test_a_backup_runs_where_the_history_does_and_a_restore_without_one() -> None:
    (term,) = PODS[BACKUP]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    ((choice),) = term["labelSelector"]["matchExpressions"]
    # A pod that its own term chooses may be the first on a node.
    assert choice == {"key": "app.kubernetes.io/name", "operator": "In", "values": ["spazio-history", "spazio-backup"]}
    labels = [WORKLOADS[name]["spec"]["template"]["metadata"]["labels"] for name in ("history", BACKUP)]
    assert [each["app.kubernetes.io/name"] for each in labels] == choice["values"]
    volume = {"name": "history", "persistentVolumeClaim": {"claimName": "spazio-history"}}
    assert all(volume in PODS[name]["volumes"] for name in ("history", BACKUP))


def test_what_placement_depends_on_tolerates_the_taint_of_full_nodes() -> None:
    toleration = {"key": node.FULL, "operator": "Exists"}
    own = {
        name
        for name, thing in WORKLOADS.items()
        if (thing["spec"]["template"]["metadata"].get("annotations") or {}).get("spazio.placement") == "off"
    }
    assert own
    for name in own | {"kubernetes"}:
        assert toleration in PODS[name]["tolerations"], name
