"""`spazio up` as a user runs it: what it shows, serves, survives and leaves behind."""

import asyncio
import contextlib
import json
import math
import re
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import duckdb
import nats
import nats.js.errors
import pytest

from schemas.messages.estimate import Availability
from schemas.subject import token
from spazio.service.composition.machine import NAMES as SERVICES
from tests.e2e.pipeline import Up, until, up
from tests.support.extender.placement import asked

README = Path(__file__).parents[3] / "README.md"


def ready(running: Up, service: str) -> bool:
    return running.page(service, "/readyz")[0] == 200


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("up") / "data") as pipeline:
        for service in SERVICES:
            until(partial(ready, pipeline, service), 30, f"{service} ready")
        yield pipeline


@pytest.mark.slow
def test_within_ten_seconds_of_the_screen_the_cache_holds_this_host_whole_and_finite(running: Up) -> None:
    rows = until(running.top, 10, "this host in the cache")
    fields = set(Availability.model_fields)
    assert fields <= set(rows[0])
    assert all(math.isfinite(value) for value in rows[0].values() if isinstance(value, float))
    assert rows[0]["lower"] <= rows[0]["available"] <= rows[0]["upper"]
    assert rows[0]["age_seconds"] < 5


@pytest.mark.slow
def test_the_bucket_and_the_subjects_are_as_the_contract_says(running: Up) -> None:
    async def look() -> tuple[list[str], dict[str, object], str]:
        client = await nats.connect(running.addresses["nats"], user_credentials=running.addresses["credentials"])
        bucket = await client.jetstream().key_value("SPAZIO_AVAILABILITY")
        keys: list[str] = []
        while not keys:  # a row that is replaced while it is looked for is not found
            with contextlib.suppress(nats.js.errors.NoKeysError):
                keys = await bucket.keys()
        value = json.loads((await bucket.get(keys[0])).value or b"")
        heard = await client.subscribe("spazio.samples.>")
        message = await heard.next_msg(timeout=3)
        await client.close()
        return keys, value, message.subject

    until(running.is_cached, 10, "this host in the cache")
    keys, value, subject = asyncio.run(look())
    assert len(keys) == 1
    assert subject == f"spazio.samples.{keys[0]}"
    assert value["node"] == socket.gethostname()


def test_a_stranger_on_this_machine_is_refused_and_only_the_owner_can_read_the_credentials(running: Up) -> None:
    port = int(running.addresses["nats"].rpartition(":")[2])
    # By the protocol itself: a refused client of the library leaves its socket open.
    with socket.create_connection(("127.0.0.1", port), timeout=5) as link, link.makefile("rb") as lines:
        assert lines.readline().startswith(b"INFO")
        link.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
        assert lines.readline() == b"-ERR 'Authorization Violation'\r\n"
    credential = Path(running.addresses["credentials"])
    assert f"credential {credential}" in running.log.read_text()
    for path in (credential.parent, *credential.parent.rglob("*")):
        assert not path.stat().st_mode & 0o077, path
    environs = {name: Path(f"/proc/{running.pid(name)}/environ").read_text() for name in SERVICES}
    own = {name: re.findall(r"SPAZIO_NATS_CREDENTIALS=([^\0]+)", text) for name, text in environs.items()}
    expected = {name: credential.parent / "roles" / f"{name}.creds" for name in SERVICES if name != "agent"}
    expected["agent"] = credential.parent / "nodes" / f"{token(socket.gethostname())}.creds"
    assert own == {name: [str(path)] for name, path in expected.items()}


@pytest.mark.slow
def test_the_example_of_the_readme_runs(running: Up) -> None:
    example = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert example is not None
    until(running.is_cached, 10, "this host in the cache")
    program = example[1].replace("~/.local/share/spazio", str(running.folder))
    assert program != example[1]
    assert len(program.splitlines()) <= 12
    with subprocess.Popen([sys.executable, "-uc", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        limit = threading.Timer(20, process.kill)
        limit.start()
        lines = [process.stdout.readline() for _ in range(2)]
        limit.cancel()
        process.kill()
    assert all(line.startswith(f"{socket.gethostname()} ") for line in lines)


def test_every_service_serves_metrics_and_health_on_loopback(running: Up) -> None:
    for service in SERVICES:
        assert running.addresses["services"][service].startswith("http://127.0.0.1:")
        assert running.page(service, "/healthz") == (200, "ok\n")
        assert running.page(service, "/metrics")[0] == 200
        assert running.page(service, "/nonsense")[0] == 404
    until(running.is_cached, 10, "this host in the cache")
    page = running.page("metrics", "/metrics")[1]
    assert re.search(r'spazio_available_pods\{node="[^"]+"\} [0-9.]+', page)
    assert running.addresses["http"] == running.addresses["services"]["metrics"]


def test_one_page_lists_the_services_for_prometheus(running: Up) -> None:
    groups = json.loads(running.page("agent", "/targets")[1])
    assert {(group["labels"]["service"], *group["targets"]) for group in groups} == {
        (name, url.removeprefix("http://")) for name, url in running.addresses["services"].items()
    }
    assert all(group["labels"]["__scheme__"] == "http" for group in groups)


@pytest.mark.slow
def test_the_scheduler_s_question_is_answered_and_the_answer_is_in_the_history(running: Up) -> None:
    until(running.is_cached, 10, "this host in the cache")
    question = {"Pod": asked("p"), "Nodes": None, "NodeNames": [socket.gethostname(), "another"]}
    request = urllib.request.Request(f"{running.addresses['extender']}/filter", json.dumps(question).encode())
    with urllib.request.urlopen(request, timeout=10) as reply:
        answer = json.load(reply)
    assert not answer["Error"]
    assert "another" in answer["NodeNames"], "nobody knows it, so it passes, last"
    decided = "SELECT outcome, nodes FROM decisions WHERE name = 'p'"
    until(lambda: running.sql(decided) == [{"outcome": "placed", "nodes": 2}], 20, "the decision in the history")


def test_what_happened_fifteen_seconds_ago_is_visible_in_sql_and_to_another_process(running: Up) -> None:
    recent = "SELECT count(*) AS n FROM samples WHERE time > now() - INTERVAL 15 SECOND"
    until(lambda: running.sql(recent)[0]["n"] > 0, 15, "recent samples")
    until(lambda: running.sql("SELECT count(*) AS n FROM availability")[0]["n"] > 0, 15, "availability")
    with duckdb.connect(running.addresses["history"], read_only=True) as other:
        assert other.execute("SELECT count(*) FROM smoothed").fetchone() != (0,)
        assert running.sql("SELECT count(DISTINCT (node, seq, at_us)) = count(*) AS once FROM samples")[0]["once"]


@pytest.mark.slow
def test_parts_without_messages_are_no_fault(running: Up) -> None:
    def shown() -> bool:
        """Tell whether every part is done or idle; one whose first message has just come is neither for a moment."""
        answer = running.run("top", "--partitions", "--once", "--json")
        rows = json.loads(answer.stdout)
        whole = all(row["owner"] or row["idle"] for row in rows)
        assert whole == (answer.returncode == 0)
        return whole and any(row["owner"] for row in rows)

    until(shown, 30, "a replica for each part with messages")


@pytest.mark.slow
def test_a_second_up_on_the_same_folder_says_who_holds_it(running: Up) -> None:
    answer = running.run("up")
    assert answer.returncode == 2
    assert f"in use by process {running.process.pid}" in answer.stderr


def test_garbage_is_kept_as_a_dead_letter_and_nothing_crashes(running: Up) -> None:
    before = running.addresses["pids"]
    for payload in (b"nonsense", b'{"v": 99}', b"\x00" * 100_000):
        running.publish("spazio.samples.x", payload)

    async def dead() -> list[bytes]:
        client = await nats.connect(running.addresses["nats"], user_credentials=running.addresses["credentials"])
        info = await client.jetstream().stream_info("SPAZIO_DEAD")
        sequences = range(max(1, info.state.first_seq), info.state.last_seq + 1)  # of an empty stream, it is 0
        letters = [await client.jetstream().get_msg("SPAZIO_DEAD", seq=number) for number in sequences]
        await client.close()
        return [letter.data or b"" for letter in letters if (letter.subject or "").startswith("spazio.dead.")]

    until(lambda: len(asyncio.run(dead())) >= 3, 10, "dead letters")
    assert sorted(asyncio.run(dead())) == sorted([b"nonsense", b'{"v": 99}', b"\x00" * 100_000])
    assert running.addresses["pids"] == before
    pattern = re.compile(r"spazio_dead_letters_total\{.*\} [0-9.]+")
    until(lambda: pattern.search(running.page("process", "/metrics")[1]), 10, "the processors count dead letters")


@pytest.mark.slow
def test_the_agent_has_none_of_the_heavy_packages_loaded(running: Up) -> None:
    maps = Path(f"/proc/{running.pid('agent')}/maps").read_text()
    assert not [name for name in ("numpy", "polars", "_duckdb", "kubernetes") if name in maps]
    heavy = ("numpy", "polars", "duckdb", "kubernetes_asyncio", "typer", "rich", "aiohttp")
    program = f"import sys, spazio.command.agent; print([name for name in {heavy} if sys.modules.get(name)])"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=True)
    assert answer.stdout == "[]\n"
