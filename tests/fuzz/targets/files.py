"""Files of this machine that others may write: scenarios and lists of the simulator, credentials, addresses.json."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bus.access.credential import Credential, Unusable
from schemas import settings as all_settings
from spazio.service import addresses
from spazio.simulation import scenario
from spazio.simulation.scenario import Unreadable
from tests.fuzz.session import Run, Target
from tests.fuzz.targets import choice

_WORDS = (
    b"[trace]\npods = 'pods.csv'\n",
    b"[[pods]]\n",
    b"[[nodes]]\n",
    b"count = 1\n",
    b"1e9",
    b"nan",
    b"9" * 400,
    b'"',
    b",,",
    b"100m",
    b"8Gi",
    b"-----BEGIN NATS USER JWT-----\n",
    b'"services": {',
    b'"pids": ',
    b"null",
    b"[" * 3000,
    b"\xff",
    b"x" * (1 << 17),
)
_PODS = b"""pod,arrival,duration,cpu_request,memory_request,cpu_usage,memory_usage,workload,kind
shop/web-1,0,600,500m,1Gi,250m,512Mi,web,serving
shop/job-1,1.5,60,1,64Mi,2,,job,batch
"""
_OPENB_PODS = b"name,cpu_milli,memory_mib,creation_time,deletion_time\nopenb-pod-0001,12000,16384,0,12537496\n"
_NODES = b"node,cpus,memory,allocatable_cpu,allocatable_memory,pods\nn1,8,16Gi,7500m,15Gi,110\nn2,8,16Gi,,,\n"
_OPENB_NODES = b"sn,cpu_milli,memory_mib,gpu,model\nopenb-node-0000,64000,262144,2,P100\n"
_SCENARIO = b"""
about = "two nodes"
seconds = 10
[[nodes]]
count = 2
cpus = 4
memory = "8Gi"
[[pods]]
name = "web"
count = 3
per_second = 2
work = 7.5
memory = "12Mi"
cpu_request = "500m"
[physics]
loss = 0.035
"""
_CREDENTIAL = b"""-----BEGIN NATS USER JWT-----
e30.eyJuYW1lIjoibjEiLCJuYXRzIjp7InB1YiI6eyJhbGxvdyI6WyJhLj4iXX0sInBheWxvYWQiOjUxMn19.c2ln
------END NATS USER JWT------
-----BEGIN USER NKEY SEED-----
SUAMK2FG4MI6UE3ACF3FK3OIQBCEIEZV7NSWFFEW63UXMRLFM2XLAXK4GY
------END USER NKEY SEED------
"""
_ADDRESSES = b"""{"nats": "nats://127.0.0.1:4222", "credentials": "/tmp/credentials/reader.creds", "pids": {"up": 1},
"services": {"process": "http://127.0.0.1:9472", "agent": "http://[::1]:9471"}, "restarts": {}, "hung": {}}"""


@contextmanager
def _opened() -> Iterator[Run]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = all_settings.load({"data_dir": name}, environ={})

        def write(file: str, data: bytes) -> Path:
            path = folder / file
            path.write_bytes(data)
            path.chmod(0o600)
            return path

        def traced(pods: bytes, nodes: bytes) -> None:
            write("pods.csv", pods)
            write("nodes.csv", nodes)
            scenario.load(str(write("traced.toml", b"[trace]\npods = 'pods.csv'\nnodes = 'nodes.csv'\n")))

        def simulated(data: bytes) -> None:
            made = scenario.load(str(write("own.toml", data)))
            assert scenario.load(str(write("again.toml", scenario.text(made).encode()))).pods == made.pods

        def credential(data: bytes) -> None:
            made = Credential(write("own.creds", data))
            made.may_publish("spazio.samples.n1")
            assert made.inbox
            assert made.subject("a")

        def located(data: bytes) -> None:
            write(addresses.FILE, data)
            addresses.targets(settings)
            for service in ("agent", "process", "reader"):
                addresses.located(settings, service)
                addresses.admitted(settings, service)

        readers: choice.Readers = {
            "pods": lambda data: traced(data, _NODES),
            "nodes": lambda data: traced(_PODS, data),
            "scenario": simulated,
            "credential": credential,
            "addresses": located,
        }
        assert list(readers) == list(_GOOD)
        with choice.opened(readers)() as once:
            yield once


_GOOD = {
    "pods": [_PODS, _OPENB_PODS],
    "nodes": [_NODES, _OPENB_NODES],
    "scenario": [_SCENARIO],
    "credential": [_CREDENTIAL],
    "addresses": [_ADDRESSES],
}


def target() -> Target:
    """Return the target; the first byte is the kind of file."""
    seeds = [bytes([number]) + data for number, kind in enumerate(_GOOD) for data in _GOOD[kind]]
    return Target("files", seeds, _opened, (Unreadable, Unusable), _WORDS)
