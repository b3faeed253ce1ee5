"""`docker-compose up` as a user runs it: real engine, real images, real containers; nothing is pulled."""

import http.client
import re
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bus import server
from tests.e2e.pipeline import until
from tests.e2e.project.stack import NODE, PROJECT, SERVICES, USER, Stack, engine

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    history = tmp_path_factory.mktemp("compose") / "history"
    with engine() as address:
        containers = Stack(address, history, server.free_port(0), server.free_port(0))
        containers.prepare()
        try:
            yield containers
        finally:
            containers.compose("down", "--volumes")


@pytest.fixture
def running(stack: Stack) -> Stack:
    stack.compose("up", "-d")
    until(partial(is_fresh, stack, time.time()), 60, "a number of after that")
    return stack


def is_fresh(stack: Stack, since: float) -> bool:
    return float(stack.cached().get("at_us", 0)) > since * 1e6


def is_well(stack: Stack) -> bool:
    return set(stack.health().values()) == {"healthy"}


def now() -> int:
    """Return the second since boot, by which blocks are numbered, in containers as here."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME))


def newest(stack: Stack) -> int:
    return int(stack.sql("SELECT coalesce(max(seq), 0) AS seq FROM samples")[0]["seq"])


def counted(stack: Stack, since: int, until_second: int) -> dict[str, Any]:
    seconds = f"seq BETWEEN {since} AND {until_second}"
    return stack.sql(
        f"SELECT {until_second - since + 1} - count(DISTINCT seq) AS missing, "
        f"count(*) - count(DISTINCT (node, seq, at_us)) AS doubled FROM samples WHERE {seconds}"
    )[0]


def test_all_get_healthy_and_this_host_is_in_the_cache(stack: Stack) -> None:
    began = time.monotonic()
    stack.compose("up", "-d")
    until(partial(is_well, stack), 180, "all healthy")
    row = until(stack.cached, 60, "this host in the cache")
    print(f"healthy and cached after {time.monotonic() - began:.1f} s")
    assert row["node"] == NODE
    assert row["lower"] <= row["available"] <= row["upper"]
    assert re.search(rf'spazio_available_pods\{{node="{NODE}"\}} [0-9.]+', stack.metrics())
    # The containers themselves, which the agent sees in the host's tree from inside its own.
    until(lambda: stack.cached().get("pods", 0) >= len(SERVICES), 30, "the containers among the pods")


def test_the_history_is_read_from_outside_by_spazio_and_by_any_duckdb(running: Stack) -> None:
    until(lambda: newest(running) > 0, 20, "samples")
    until(lambda: running.sql("SELECT count(*) AS n FROM availability")[0]["n"] > 0, 20, "availability")
    messages = running.sql("SELECT count(*) AS n, max(net_bytes) >= 0 AS net, max(cpu_util) > 0 AS cpu FROM samples")[0]
    assert messages["n"] > 0
    assert (messages["net"], messages["cpu"]) == (True, True)  # the host's own, through the mounts
    assert running.parquet("SELECT count(*) > 0, any_value(node) FROM FILES") == (True, NODE)
    owners = {path.stat().st_uid for path in running.history.rglob("*")}
    assert owners == {USER}


def test_no_container_has_more_than_it_needs(running: Stack) -> None:
    for service in SERVICES:
        result = running.inspect(service)
        host = result["HostConfig"]
        assert host["ReadonlyRootfs"] is True, service
        assert host["CapDrop"] == ["ALL"], service
        assert "no-new-privileges:true" in host["SecurityOpt"], service
        assert not host["Privileged"]
        assert host["PidMode"] == ""
        assert host["NetworkMode"] != "host"
        status = Path(f"/proc/{result['State']['Pid']}/status").read_text()
        assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE), service
        if service != "nats":
            assert not re.search(r"^Uid:\s+0\b", status, re.MULTILINE), service
        sources = {mount["Source"] for mount in result["Mounts"] if mount["Type"] == "bind" and not mount["RW"]}
        assert sources & {"/proc", "/sys/fs/cgroup"} == ({"/proc", "/sys/fs/cgroup"} if service == "agent" else set())
    # By the host's /proc the agent would see what a service of its own user has.
    neighbour = running.inspect("process")["State"]["Pid"]
    program = f"open('/host/proc/{neighbour}/environ').read()"
    with pytest.raises(AssertionError, match="Permission denied"):
        running.compose("exec", "-T", "agent", "python", "-c", program)
    published = {
        service: {bound["HostIp"] for ports in bindings.values() for bound in ports or []}
        for service in SERVICES
        if (bindings := running.inspect(service)["NetworkSettings"]["Ports"])
    }
    assert published == {
        "nats": {"127.0.0.1"},
        "metrics": {"127.0.0.1"},
        "extender": {"127.0.0.1"},
        "dashboard": {"127.0.0.1"},
    }


def test_each_service_has_its_own_credential_and_nobody_else_the_keys(running: Stack) -> None:
    def volumes(service: str) -> set[str]:
        return {mount["Name"] for mount in running.inspect(service)["Mounts"] if mount["Type"] == "volume"}

    made = running.inspect("credentials")
    assert (made["State"]["Status"], made["State"]["ExitCode"]) == ("exited", 0)
    assert made["HostConfig"]["NetworkMode"] == "none"
    assert made["HostConfig"]["CapDrop"] == ["ALL"]
    assert made["Config"]["User"] == "10001:10001"
    names = volumes("credentials")
    keys = f"{PROJECT}_keys"
    assert keys in names
    program = "import glob, os; print(sorted(os.listdir('/etc/spazio')), glob.glob('/credentials/*/*'))"
    handed = {
        "extender": ["ca.crt", "clients.crt", "nats.creds", "server.crt", "server.key"],
        "dashboard": ["ca.crt", "nats.creds", "server.crt", "server.key", "token"],
    }
    for service in set(SERVICES) - {"nats"}:
        assert volumes(service) & names == {f"{PROJECT}_{service}-credentials"}
        assert (
            running.compose("exec", "-T", service, "python", "-c", program)
            == f"{handed.get(service, ['ca.crt', 'nats.creds'])} []"
        )
    assert volumes("nats") & names == {f"{PROJECT}_nats-accounts", f"{PROJECT}_nats-tls"}


def test_nobody_without_tls_or_without_a_credential_gets_in(running: Stack) -> None:
    port, hello = int(running.url.rpartition(":")[2]), b'CONNECT {"verbose":false}\r\nPING\r\n'
    context = ssl.create_default_context(cafile=running.taken("tls/nats/ca.crt"))
    with socket.create_connection(("127.0.0.1", port), timeout=5) as link:
        assert b'"tls_required":true' in link.recv(1 << 16)
        with context.wrap_socket(link, server_hostname="127.0.0.1") as secure:
            secure.sendall(hello)
            assert secure.makefile("rb").readline() == b"-ERR 'Authorization Violation'\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=5) as link:
        link.recv(1 << 16)
        link.sendall(hello)
        with suppress(ConnectionError):  # bytes that are no handshake end the connection
            assert b"PONG" not in link.makefile("rb").read()


def test_extender_and_dashboard_speak_tls_and_ask_who_it_is_once_they_leave_the_host(running: Stack) -> None:
    running.compose("-f", "docker-compose.yml", "-f", "deploy/published.yml", "up", "-d", "extender", "dashboard")

    def ask(service: str, inner: int, path: str, *, certified: bool) -> int:
        """Return the status of an answer; 0: there is none."""
        ((bound, *_),) = [
            bindings
            for port, bindings in running.inspect(service)["NetworkSettings"]["Ports"].items()
            if port == f"{inner}/tcp"
        ]
        context = ssl.create_default_context(cafile=running.taken(f"tls/{service}/ca.crt"))
        if certified:
            own = [running.taken(f"tls/{service}/client.{kind}") for kind in ("crt", "key")]
            context.load_cert_chain(own[0], own[1])
        link = http.client.HTTPSConnection("127.0.0.1", int(bound["HostPort"]), timeout=5, context=context)
        try:
            link.request("GET", path)
            return link.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            link.close()

    secret = running.taken("dashboard.token").read_text().strip()
    until(lambda: ask("dashboard", 8802, f"/?token={secret}", certified=False) == 303, 60, "the dashboard")
    assert ask("dashboard", 8802, "/", certified=False) == 401
    until(lambda: ask("extender", 8800, "/", certified=True), 60, "the extender")
    assert ask("extender", 8800, "/", certified=False) == 0


def test_what_was_issued_stays_when_the_stack_is_started_again(running: Stack) -> None:
    def issued() -> str:
        return running.compose("exec", "-T", "agent", "cat", "/etc/spazio/nats.creds")

    before = issued()
    assert "NATS USER JWT" in before
    running.compose("up", "-d")
    assert issued() == before


def test_the_image_of_the_agent_has_none_of_the_heavy_packages_nor_pip(running: Stack) -> None:
    program = "import importlib.util as u; print([n for n in ('numpy', 'polars', 'duckdb', 'pip') if u.find_spec(n)])"
    assert running.compose("exec", "-T", "agent", "python", "-c", program) == "[]"
    sizes = {
        image: int(running.docker("image", "inspect", "-f", "{{.Size}}", image))
        for image in ("spazio-base:local", "spazio-agent:0.1.0", "spazio:0.1.0")
    }
    print({name: f"{size / 1e6:.0f} MB" for name, size in sizes.items()})
    assert sizes["spazio-agent:0.1.0"] - sizes["spazio-base:local"] < 30e6


def test_with_the_engines_socket_workload_classes_have_names(running: Stack) -> None:
    running.compose("-f", "docker-compose.yml", "-f", "deploy/docker-socket.yml", "up", "-d", "agent")
    classes = {f"{PROJECT}/{service}" for service in SERVICES}
    until(lambda: classes <= running.cached().get("classes", {}).keys(), 60, "the classes of all services")


# Those that all others wait for by themselves, the rest in two groups.
@pytest.mark.parametrize(
    "services",
    [("nats",), ("agent",), ("process", "metrics"), ("cache", "history", "extender", "dashboard")],
    ids="+".join,
)
def test_containers_that_are_killed_come_back_and_no_history_is_lost(running: Stack, services: tuple[str, ...]) -> None:
    since = now()
    restarts = {service: running.inspect(service)["RestartCount"] for service in services}
    killed = time.time()
    for service in services:
        running.kill(service)
    for service, before in restarts.items():
        until(lambda: running.inspect(service)["RestartCount"] > before, 30, f"{service} again")  # noqa: B023 # at once
    # A number of before the kill may still come of it; a second later they are of after.
    until(partial(is_fresh, running, killed + 1), 30 - (time.time() - killed), "a new availability")
    print(f"{services}: a new availability after {time.time() - killed:.1f} s")
    until(lambda: NODE in running.metrics(), 30, "the metrics")
    last = now()
    until(lambda: newest(running) >= last, 40, "the history")
    messages = counted(running, since, last)
    assert messages["doubled"] == 0
    # The agent's own time down cannot be measured by it; all others' time down is made up for.
    assert messages["missing"] <= (8 if "agent" in services else 0)


def test_down_and_up_keep_the_history(running: Stack) -> None:
    until(lambda: newest(running) > 0, 20, "samples")
    first = running.sql("SELECT min(seq) AS seq FROM samples")[0]["seq"]
    running.compose("down")
    rows = running.sql("SELECT count(*) AS n, max(seq) AS seq FROM samples")[0]
    assert rows["n"] > 0
    running.compose("up", "-d")
    until(lambda: newest(running) > rows["seq"] + 5, 60, "more history")
    again = running.sql(f"SELECT count(*) AS n, min(seq) AS seq FROM samples WHERE seq <= {rows['seq']}")[0]
    assert again["seq"] == first
    assert again["n"] >= rows["n"]
    assert counted(running, first, newest(running))["doubled"] == 0
    until(partial(is_well, running), 60, "all healthy")
