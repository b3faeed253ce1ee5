"""A real Prometheus with this project's rules, for tests: pointed at running services, asked over its API."""

import json
import math
import re
import shutil
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from bus.server import free_port

ROOT = Path(__file__).parents[3]
RULES = ROOT / "deploy" / "prometheus" / "spazio.rules.yml"
DASHBOARDS = sorted((ROOT / "deploy" / "grafana").glob("*.json"))
MISSING = (
    "" if shutil.which("prometheus") and shutil.which("promtool") else "prometheus (Debian package) is not installed"
)

LASTING = "SpazioNodeSilent"  # a node that was there is silent for as long as it stays away

_SECONDS = {"s": 1, "m": 60, "h": 3600}


def alerts() -> list[dict[str, Any]]:
    """Return all rules."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def queries(dashboard: Mapping[str, Any], interval: str) -> list[tuple[str, str]]:
    """Return the title of each panel of a dashboard with each of its queries, all variables meaning everything."""
    result = []
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            query = target["expr"].replace("$__rate_interval", interval)
            result.append((panel["title"], re.sub(r"\$(node|class|part)\b", ".*", query)))
    return result


def hurried(text: str, factor: int) -> str:
    """Return rules whose waits and ranges are shorter by a factor, and never below two seconds."""

    def shorter(match: re.Match[str]) -> str:
        seconds = int(match[2]) * _SECONDS[match[3]]
        return f"{match[1]}{max(2, seconds // factor)}s" if seconds else match[0]

    return re.sub(r"(for: |\[|offset )(\d+)([smh])", shorter, text)


class Prometheus:
    """A server that reads services once a second."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def ask(self, path: str, **query: str) -> Any:
        """Return the data of an answer of the API."""
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=10) as answer:
            return json.load(answer)["data"]

    def values(self, query: str) -> list[float]:
        """Return the numbers that a query gives now, without those that are not numbers."""
        result = [float(row["value"][1]) for row in self.ask("query", query=query)["result"]]
        return [value for value in result if not math.isnan(value)]

    def firing(self) -> list[tuple[str, str]]:
        """Return name and summary of each alert that fires."""
        firing = [each for each in self.ask("alerts")["alerts"] if each["state"] == "firing"]
        return [(each["labels"]["alertname"], each["annotations"]["summary"]) for each in firing]

    def fires(self, meanwhile: Callable[[], None] = lambda: None, *, seconds: float = 60, **summaries: str) -> None:
        """Wait until each of some alerts has fired, with a summary that begins so; something goes on meanwhile."""
        left = dict(summaries)

        def all_have() -> bool:
            meanwhile()
            for name, summary in self.firing():
                if name in left and summary.startswith(left[name]):
                    del left[name]
            return not left

        deadline = time.monotonic() + seconds
        while not all_have() and time.monotonic() < deadline:
            time.sleep(0.2)
        assert not left, left

    def clears(self, *names: str, besides: str = LASTING, seconds: float = 90) -> None:
        """Wait until none of these alerts fires, or without names, nothing else; what fell behind has time for that."""
        deadline = time.monotonic() + seconds
        while (
            left := [each for each in self.firing() if each[0] in names or (not names and each[0] != besides)]
        ) and time.monotonic() < deadline:
            time.sleep(0.5)
        assert not left, left


@contextmanager
def prometheus(targets: str, rules: str) -> Iterator[Prometheus]:
    """Run a server.

    Args:
        targets: Page that lists what it reads.
        rules: Content of the rule file.
    """
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s", "scrape_timeout": "1s"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [{"job_name": "spazio", "http_sd_configs": [{"url": targets, "refresh_interval": "1s"}]}],
    }
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "rules.yml").write_text(rules)
        (Path(folder) / "prometheus.yml").write_text(json.dumps(config))
        port = free_port(0)
        server = Prometheus(port)
        command = ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data", "--log.level=warn"]
        with (Path(folder) / "log").open("w") as log:
            process = subprocess.Popen(
                [*command, f"--web.listen-address=127.0.0.1:{port}"], cwd=folder, stdout=log, stderr=log
            )
        try:
            _wait(server, process, Path(folder) / "log")
            yield server
        finally:
            process.kill()
            process.wait()


def _wait(server: Prometheus, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            server.ask("status/runtimeinfo")
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(log.read_text())
