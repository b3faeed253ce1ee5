"""The extender over HTTP: what schedulers ask is answered, and nothing that a client does hinders the others."""

import asyncio
import json
import logging
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from bus.health import Health
from schemas.sections.placement import Extender
from schemas.settings import SettingsError
from sinks.extender.web import server
from tests.integration.sinks.extender.recorded import counted, recorded, timed
from tests.support.extender.asking import POD, Rule, lab, post, question

FORMS = ("names", "nodes")


async def test_each_recorded_request_is_answered_over_one_connection() -> None:
    async with lab(bind=True) as running, running.wire() as wire:
        for form in FORMS:
            await wire.send(recorded(f"filter-{form}"))
            status, headers, body = await wire.answer()
            assert (status, headers["content-type"]) == (200, "application/json")
            assert "transfer-encoding" not in headers
            result = json.loads(body)
            assert result["FailedAndUnresolvableNodes"] == {"lab-0": "it ends in 0"}
            assert (result["FailedNodes"], result["Error"]) == ({}, "")
            if form == "names":
                assert (result["Nodes"], sorted(result["NodeNames"])) == (None, ["lab-1", "lab-2"])
            else:
                assert result["NodeNames"] is None
                assert sorted(node["metadata"]["name"] for node in result["Nodes"]["items"]) == ["lab-1", "lab-2"]

            await wire.send(recorded(f"prioritize-{form}"))
            status, _, body = await wire.answer()
            assert status == 200
            assert sorted(json.loads(body), key=lambda each: each["Host"]) == [
                {"Host": f"lab-{score}", "Score": score} for score in range(3)
            ]

            await wire.send(recorded(f"preempt-{form}"))
            status, _, body = await wire.answer()
            assert (status, list(json.loads(body))) == (200, ["NodeNameToMetaVictims"])
            assert sorted(json.loads(body)["NodeNameToMetaVictims"]) == ["lab-1", "lab-2"]

            await wire.send(recorded(f"bind-{form}"))
            status, _, body = await wire.answer()
            asked = json.loads(recorded(f"bind-{form}").partition(b"\r\n\r\n")[2])
            assert (status, running.rule.bound[asked["PodUID"]]) == (200, asked["Node"])
            assert json.loads(body) == {"Error": ""}


async def test_five_thousand_names_are_answered_with_all_that_pass() -> None:
    names = [f"worker-{number}" for number in range(5000)]
    async with lab() as running:
        status, body = await running.ask("/scheduler/filter", question(names))
        assert status == 200
        assert json.loads(body)["NodeNames"] == [name for name in names if not name.endswith("0")]
        _, body = await running.ask("/scheduler/prioritize", question(names))
        assert {each["Host"]: each["Score"] for each in json.loads(body)} == {name: int(name[-1]) for name in names}


@pytest.mark.slow
async def test_ten_megabytes_of_whole_nodes_come_back_as_they_came() -> None:
    document = json.loads(recorded("filter-nodes").partition(b"\r\n\r\n")[2])["Nodes"]["items"][0]
    document["metadata"]["annotations"] = {"example/note": "é" * 320}
    nodes = [{**document, "metadata": {**document["metadata"], "name": f"worker-{number}"}} for number in range(3500)]
    body = json.dumps({"Pod": POD, "Nodes": {"items": nodes}, "NodeNames": None}).encode()
    assert 10e6 < len(body) < 16e6
    async with lab() as running:
        status, answer = await running.ask("/scheduler/filter", body)
    assert status == 200
    assert json.loads(answer)["Nodes"]["items"] == [node for node in nodes if node["metadata"]["name"][-1] != "0"]


async def test_a_pod_that_cannot_be_judged_is_an_error_that_the_scheduler_shows() -> None:
    async with lab() as running:
        status, body = await running.ask("/scheduler/filter", {"Pod": {}, "NodeNames": []})
        assert (status, json.loads(body)["Error"]) == (200, "the pod has no metadata")
        status, body = await running.ask("/scheduler/filter", question(metadata={"name": "puzzles"}))
        assert (status, json.loads(body)["Error"]) == (200, "nobody knows")
        status, body = await running.ask("/scheduler/prioritize", {"Pod": {}, "NodeNames": []})
        assert (status, body) == (400, "prioritize: the pod has no metadata\n")
        status, body = await running.ask("/scheduler/preempt", {"Pod": {}})
        assert (status, body) == (400, "preempt: the pod has no metadata\n")


async def test_what_goes_wrong_while_binding_is_reported() -> None:
    whole = {"PodName": "p", "PodNamespace": "n", "PodUID": "u", "Node": "n-0"}
    async with lab(bind=True) as running:
        assert json.loads((await running.ask("/scheduler/bind", whole))[1]) == {"Error": "n/p does not go to n-0"}
        other = {**whole, "PodNamespace": "nowhere", "Node": "n-1"}
        assert json.loads((await running.ask("/scheduler/bind", other))[1]) == {"Error": "there is no such namespace"}


async def test_nothing_is_bound_unless_settings_say_so() -> None:
    async with lab() as running:
        status, body = await running.ask(
            "/scheduler/bind", {"PodName": "p", "PodNamespace": "n", "PodUID": "u", "Node": "n-1"}
        )
        assert status == 200
        assert "SPAZIO_EXTENDER_BIND" in json.loads(body)["Error"]
        assert running.rule.bound == {}


async def test_an_unexpected_error_is_reported_once_with_its_trace_and_the_service_lives(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with lab() as running:
        before = counted("filter", "500")
        for _ in range(3):
            status, body = await running.ask("/scheduler/filter", question(metadata={"name": "breaks"}))
            assert (status, "RuntimeError" in body) == (500, True)
        assert counted("filter", "500") == before + 3
        messages = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert [record.message for record in messages] == ["request.failed"]
        assert messages[0].exc_info is not None
        assert (await running.ask("/scheduler/filter", question()))[0] == 200


async def test_other_methods_and_paths_are_turned_away_with_what_is_right() -> None:
    async with lab() as running:
        for path in ("/scheduler/filter", "/filter"):
            async with aiohttp.request("GET", running.root + path) as response:
                assert (response.status, response.headers["Allow"]) == (405, "POST")
        async with aiohttp.request("POST", f"{running.root}/healthz") as response:
            assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")
        status, body = await running.ask("/scheduler/fliter", question())
        assert (status, "/scheduler/VERB" in body) == (404, True)
        assert (await running.ask("/filter", question()))[0] == 200


async def test_a_web_page_reserves_nothing_through_the_browser_of_a_user_of_this_host() -> None:
    """A page may send text to loopback unasked; browsers say whose page it is, and the scheduler does not."""
    async with lab() as running:
        page = {"Origin": "http://example.com", "Content-Type": "text/plain"}
        for verb in ("filter", "prioritize", "preempt", "bind"):
            asked = aiohttp.request("POST", f"{running.root}/scheduler/{verb}", json=question(), headers=page)
            async with asked as response:
                assert response.status == 403
        assert (await running.ask("/scheduler/filter", question()))[0] == 200


async def test_health_is_what_the_service_says() -> None:
    async with lab() as running:
        assert await running.ask("/healthz", b"", method="GET") == (200, "ok\n")
        running.health.degrade("extender", "it is slow")
        assert (await running.ask("/healthz", b"", method="GET"))[0] == 200
        running.health.degrade("nats", "it is lost", dead=True)
        assert await running.ask("/healthz", b"", method="GET") == (503, "nats: it is lost\n")
        running.health.recover("nats")
        running.health.recover("extender")


async def test_the_address_tells_the_port_and_a_taken_one_is_a_fault_of_the_settings() -> None:
    async with lab() as running:
        port = int(running.root.rpartition(":")[2])
        assert running.address == f"http://127.0.0.1:{port}/scheduler"
        with pytest.raises(SettingsError, match=f"port {port} cannot be listened on.*--extender-port"):
            async with server.serve(Extender(port=port), Rule(), Health()):
                raise AssertionError("it is taken")
        with pytest.raises(SettingsError, match=r"192\.0\.2\.1 port 0 cannot be listened on"):
            async with server.serve(Extender(host="192.0.2.1", port=0, allow_anonymous=True), Rule(), Health()):
                raise AssertionError("it is not ours")


async def test_requests_are_counted_and_timed_by_verb() -> None:
    async with lab() as running:
        before = counted("prioritize", "200"), timed("prioritize")
        await running.ask("/scheduler/prioritize", question())
        assert (counted("prioritize", "200"), timed("prioritize")) == (before[0] + 1, before[1] + 1)


async def test_a_request_that_its_client_gives_up_is_timed_as_well() -> None:
    async with lab() as running:
        before = counted("filter", "gone"), timed("filter")
        async with running.wire() as wire:
            await wire.send(post("filter", question(metadata={"name": "waits"})))
            await running.rule.waiting.wait()
        await running.ask("/scheduler/prioritize", question())  # by then the server has noticed
        running.rule.gate.set()
        await running.ask("/scheduler/prioritize", question())
        assert (counted("filter", "gone"), timed("filter")) == (before[0] + 1, before[1] + 1)


@pytest.mark.slow
def test_whatever_json_is_posted_the_service_answers_and_lives() -> None:
    keys = st.sampled_from(
        ["Pod", "Nodes", "NodeNames", "items", "metadata", "name", "uid", "UID", "Pods", "NumPDBViolations",
         "NodeNameToVictims", "NodeNameToMetaVictims", "PodName", "PodNamespace", "PodUID", "Node"]
    )  # fmt: skip
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    content = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(keys, inner), max_leaves=15)
    asked = st.tuples(st.sampled_from(["filter", "prioritize", "preempt", "bind"]), content)

    with asyncio.Runner() as runner:
        running_lab = lab(bind=True)
        running = runner.run(running_lab.__aenter__())

        @hypothesis_settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(asked)
        def holds(asked: tuple[str, Any]) -> None:
            verb, body = asked
            pod = {"Pod": POD, **body} if isinstance(body, dict) else body
            for each in (body, pod):
                assert runner.run(running.ask(f"/scheduler/{verb}", each))[0] in (200, 400)

        holds()
        assert runner.run(running.ask("/scheduler/filter", question()))[0] == 200
        runner.run(running_lab.__aexit__(None, None, None))
