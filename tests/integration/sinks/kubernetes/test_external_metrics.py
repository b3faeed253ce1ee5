"""External metrics over HTTPS: what is served of forecasts, to whom, and what is refused."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bus import server as ports
from schemas.messages.prediction import Resources
from schemas.sections.output import Output
from schemas.settings import SettingsError
from sinks.kubernetes.external import server
from sinks.kubernetes.latest import Latest
from tests.support.extender.asking import make_keys
from tests.support.processors.predicted import forecast

NOW = 1_800_000_000.0
ROOT = "/apis/external.metrics.k8s.io/v1beta1"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    make_keys(folder)
    return folder


def output(keys: Path, **changed: Any) -> Output:
    given = {"tls_cert": "server.pem", "tls_key": "server.key", "tls_client_ca": "ca.pem"}
    files = {f"external_{name}": keys / file for name, file in given.items()}
    fields = {"external": True, "external_port": ports.free_port(0), "forecast_seconds": 60, **files, **changed}
    return Output.model_validate(fields)


def foreseen(workload: str, *, namespace: str = "shop", age: float = 0, cores: float = 1.25, **changed: Any) -> Any:
    at_us, amounts = round((NOW - age) * 1e6), Resources(cpu=cores, memory=3e9)
    return forecast(namespace=namespace, workload=workload, at_us=at_us, forecast=amounts, desired=7, **changed)


@asynccontextmanager
async def asking(keys: Path, latest: Latest, who: str | None = "client") -> AsyncIterator[Any]:
    """Serve, and yield a function that asks for a path: it returns status and content."""
    chosen = output(keys)
    context = ssl.create_default_context(cafile=str(keys / "ca.pem"))
    if who is not None:
        context.load_cert_chain(keys / f"{who}.pem", keys / f"{who}.key")
    async with (
        server.serving(latest, chosen, lambda: NOW),
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
    ):

        async def ask(path: str) -> tuple[int, Any]:
            async with session.get(f"https://127.0.0.1:{chosen.external_port}{ROOT}{path}") as response:
                return response.status, await response.json()

        yield ask


def latest_of(*forecasts: Any) -> Latest:
    latest = Latest()
    for each in forecasts:
        latest.hear(each)
    latest.current.set()
    return latest


async def test_the_fresh_forecasts_of_a_namespace_are_served_by_selector(keys: Path) -> None:
    latest = latest_of(
        foreseen("web"), foreseen("api", cores=2.0), foreseen("db", kind="StatefulSet"),
        foreseen("old", age=61), foreseen("ahead", age=-61), foreseen("web", namespace="other"),
    )  # fmt: skip
    async with asking(keys, latest) as ask:
        status, listed = await ask("/namespaces/shop/spazio-forecast-cpu")
        assert (status, listed["kind"], listed["apiVersion"]) == (
            200, "ExternalMetricValueList", "external.metrics.k8s.io/v1beta1",
        )  # fmt: skip
        assert listed["items"][0] == {
            "metricName": "spazio-forecast-cpu",
            "metricLabels": {"kind": "Deployment", "workload": "web"},
            "timestamp": "2027-01-15T08:00:00Z",
            "value": "1250m",
        }

        async def served(metric: str, selector: str = "") -> dict[str, str]:
            _, listed = await ask(f"/namespaces/shop/{metric}?labelSelector={selector}")
            return {each["metricLabels"]["workload"]: each["value"] for each in listed["items"]}

        everything = {"web": "1250m", "api": "2000m", "db": "1250m"}
        assert await served("spazio-forecast-cpu") == everything
        assert await served("spazio-forecast-memory", "workload%3Dapi") == {"api": "3000000000"}
        assert await served("spazio-forecast-pods", "workload+in+%28web%2Cdb%29%2Ckind%21%3DDeployment") == {"db": "7"}
        assert await served("spazio-forecast-cpu", "workload%3Dnone") == {}


async def test_the_version_lists_its_metrics_and_what_cannot_be_answered_is_a_status(keys: Path) -> None:
    latest = latest_of(foreseen("web"))
    async with asking(keys, latest) as ask:
        status, listed = await ask("")
        assert (status, listed["kind"]) == (200, "APIResourceList")
        assert {each["name"] for each in listed["resources"]} == {
            "spazio-forecast-cpu", "spazio-forecast-memory", "spazio-forecast-pods",
        }  # fmt: skip
        assert (await ask("/namespaces/shop/other"))[1]["reason"] == "NotFound"
        assert (await ask("/namespaces/shop/spazio-forecast-cpu?labelSelector=a%3D%3D%3Db"))[1][
            "reason"
        ] == "BadRequest"
        latest.current.clear()
        assert (await ask("/namespaces/shop/spazio-forecast-cpu"))[1]["code"] == 503


@pytest.mark.parametrize("who", [None, "stranger"])
async def test_only_clients_of_the_api_servers_authority_are_answered(keys: Path, who: str | None) -> None:
    async with asking(keys, latest_of(foreseen("web")), who) as ask:
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await ask("/namespaces/shop/spazio-forecast-cpu")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"external_tls_client_ca": None}, "no other client may ask"),
        ({"external_tls_cert": None}, "no other client may ask"),
        ({"external_tls_key": Path("/absent")}, "--output-external-tls-key"),
        ({"external_host": "192.0.2.1"}, "cannot be listened on"),
    ],
)
async def test_nothing_is_served_without_all_certificates(keys: Path, changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        async with server.serving(latest_of(), output(keys, **changed), lambda: NOW):
            raise AssertionError("it was served")


async def test_nothing_is_served_by_default(keys: Path) -> None:
    async with server.serving(latest_of(), Output(), lambda: NOW) as address:
        assert address == ""
