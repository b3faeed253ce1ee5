"""Three real servers with the configuration of deploy/kustomize/production become one cluster, and only they."""

import asyncio
import json
import os
import re
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import nats
import nats.errors
import pytest
import yaml  # type: ignore[import-untyped]

from bus import server
from schemas import role
from tests.support.server.natsd import Natsd

Answer = TypeVar("Answer")

DEPLOY = Path(__file__).parents[3] / "deploy"
CONFIG = yaml.safe_load((DEPLOY / "kustomize/production/patches/nats-config.yaml").read_text())["data"]["spazio.conf"]
SINGLE = (DEPLOY / "nats.conf").read_text()

pytestmark = pytest.mark.slow


def free_ports(count: int) -> list[int]:
    ports: list[int] = []
    for _ in range(count):
        ports.append(server.free_port(0, besides=ports))
    return ports


class Member:
    """One server; names and ports of a cluster are replaced by ports on loopback."""

    def __init__(self, folder: Path, name: str, routes: str, own: list[int]) -> None:
        (client, self.monitor, route), self.routes = own, routes
        text = CONFIG.replace("0.0.0.0:4222", f"127.0.0.1:{client}").replace(
            "0.0.0.0:8222", f"127.0.0.1:{self.monitor}"
        )
        text = text.replace("0.0.0.0:6222", f"127.0.0.1:{route}").replace("/data", str(folder / "data"))
        text = text.replace("/etc/nats/tls", str(folder.parent / "keys" / "tls" / "nats"))
        (folder / "routes").mkdir(parents=True)
        (folder / "routes" / "routes.conf").write_text(routes)
        (folder / "accounts").mkdir()
        (folder / "accounts" / "accounts.conf").write_text((folder.parent / "keys" / "server.conf").read_text())
        (folder / "spazio.conf").write_text(text)
        self.server = Natsd(folder / "spazio.conf", client, {"HOSTNAME": name})

    def page(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.monitor}/{path}", timeout=5) as answer:
            content: dict[str, Any] = json.load(answer)
            return content

    def meta(self) -> tuple[str, int]:
        """Return the leader of the streams' placement and the number of servers; nothing before the first election."""
        meta = self.page("jsz").get("meta_cluster", {})
        return meta.get("leader", ""), meta.get("cluster_size", 0)


def made_routes() -> str:
    answer = subprocess.run([str(DEPLOY / "nats-routes.sh")], capture_output=True, text=True, check=True)
    return answer.stdout


def certify(folder: Path) -> None:
    """Make certificates for loopback; in a cluster they name the Services."""
    subprocess.run([str(DEPLOY / "certificates.sh"), str(folder), "127.0.0.1"], check=True, capture_output=True)


@pytest.fixture
def members(tmp_path: Path) -> Iterator[list[Member]]:
    (tmp_path / "nodes").write_text("n1\n")
    certify(tmp_path / "keys" / "tls" / "nats")
    command = [sys.executable, "-m", "spazio", "credentials", "--out", str(tmp_path / "keys")]
    subprocess.run([*command, "--nodes", str(tmp_path / "nodes")], check=True, capture_output=True)
    ports, routes = free_ports(9), made_routes()
    for number in range(3):
        name = f"spazio-nats-{number}.spazio-nats-servers.spazio.svc:6222"
        assert name in routes
        routes = routes.replace(name, f"127.0.0.1:{ports[3 * number + 2]}")
    result = [
        Member(tmp_path / str(number), f"spazio-nats-{number}", routes, ports[3 * number : 3 * number + 3])
        for number in range(3)
    ]
    try:
        for member in result:
            member.server.start()
        yield result
    finally:
        for member in result:
            member.server.kill()


def settled(member: Member, *, size: int) -> str:
    """Wait until a server knows a leader among so many servers; returns its name."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        leader, given = member.meta()
        if leader and given == size:
            return leader
        time.sleep(0.1)
    raise AssertionError(member.server.log)


async def test_three_servers_become_one_cluster_whose_streams_survive_the_loss_of_one(
    members: list[Member], tmp_path: Path
) -> None:
    settled(members[0], size=3)
    by_name = {member.page("varz")["server_name"]: member for member in members}
    assert sorted(by_name) == ["spazio-nats-0", "spazio-nats-1", "spazio-nats-2"]
    client = await nats.connect(
        [member.server.url.replace("nats://", "tls://") for member in members],
        tls=ssl.create_default_context(cafile=str(tmp_path / "keys" / "tls" / "nats" / "ca.crt")),
        user_credentials=str(tmp_path / "keys" / "roles" / "admin.creds"),
        inbox_prefix=f"{role.INBOX}_admin",
    )
    try:
        stream = client.jetstream(timeout=20)
        made = await stream.add_stream(name="S", subjects=["s"], num_replicas=3)
        assert made.cluster is not None
        assert {made.cluster.leader, *(peer.name for peer in made.cluster.replicas or ())} == by_name.keys()
        await stream.publish("s", b"before")
        by_name[made.cluster.leader or ""].server.kill()
        await answered(partial(stream.publish, "s", b"after", timeout=1))
        stored = [await answered(partial(stream.get_msg, "S", seq=number)) for number in (1, 2)]
        assert [message.data for message in stored] == [b"before", b"after"]
    finally:
        await client.close()


async def answered(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Ask until the servers that are left answer; they elect new leaders first."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return await ask()
        except (nats.errors.Error, TimeoutError):
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.2)


def refused(stranger: Member, members: list[Member], reason: str) -> None:
    """Start a server, and see that the members refuse it for a reason in its log."""
    stranger.server.start()
    try:
        deadline = time.monotonic() + 60
        while reason not in stranger.server.log and time.monotonic() < deadline:
            time.sleep(0.1)
        assert reason in stranger.server.log
        # Its own page counts a route until it is refused, so the members are asked.
        routes = [route for member in members for route in member.page("routez")["routes"]]
        assert {route["remote_name"] for route in routes} == {f"spazio-nats-{number}" for number in range(3)}
    finally:
        stranger.server.kill()


def refuse_uncertified(members: list[Member], folder: Path) -> None:
    """Start a server that knows the password and has a certificate of another authority; expect its refusal."""
    certify(folder / "other" / "keys" / "tls" / "nats")
    accounts = (folder / "keys" / "server.conf").read_text()
    (folder / "other" / "keys" / "server.conf").write_text(accounts)
    stranger = Member(folder / "other" / "stranger", "uncertified", members[0].routes, free_ports(3))
    refused(stranger, members, "certificate signed by unknown authority")


def test_a_server_without_the_password_or_the_certificate_is_not_admitted(
    members: list[Member], tmp_path: Path
) -> None:
    settled(members[0], size=3)
    refuse_uncertified(members, tmp_path)
    (route,) = re.findall(r":(\d+)", members[0].server.config.read_text().partition("cluster {")[2])
    wrong = re.sub(r"spazio:\w+@127.0.0.1:\d+", f"spazio:wrong@127.0.0.1:{route}", members[0].routes)
    stranger = Member(tmp_path / "stranger", "stranger", wrong, free_ports(3))
    refused(stranger, members, "Authorization Violation")


def test_each_password_is_new_and_all_else_is_as_in_the_single_server() -> None:
    assert made_routes() != made_routes()
    own = ("#", "server_name", "http", "max_file_store")
    single = {line.strip() for line in SINGLE.splitlines()}
    assert {line for line in single if line and not line.startswith(own)} <= {
        line.strip() for line in CONFIG.splitlines()
    }
    assert os.access(DEPLOY / "nats-routes.sh", os.X_OK)
