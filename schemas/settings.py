"""Every setting in one place, with its unit, its default and the reason for that default.

A setting `field` of a section is given as `--section-field` on the command line, as `SPAZIO_SECTION_FIELD` in the
environment, or as `field` under `[section]` in a TOML file; the first of these that speaks wins. All faults are
found in one pass, so that one run tells everything that has to be mended.
"""

import difflib
import os
import socket
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from schemas.subject import PARTITIONS, is_node_name

ENV = "SPAZIO_"
FEATURES = ("cpu", "memory", "memory_pressure", "io_pressure", "disk")
_OTHER_ENV = {"SPAZIO_CONFIG"}


class SettingsError(ValueError):
    """Settings that cannot be used; the message has one line per fault."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        super().__init__("\n".join(faults))


class Section(BaseModel):
    """Base of the sections: frozen, and a field that does not exist is a fault."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _data_home() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "spazio"


def _node_name(value: str) -> str:
    if value and not is_node_name(value):
        raise ValueError("has no white space and at most 253 characters; empty means this host's name")
    return value


def _server_url(value: str) -> str:
    try:
        parts = urlsplit(value if "://" in value else f"nats://{value}")
        sound = bool(parts.hostname) and parts.scheme in ("nats", "tls") and parts.port != 0 and not parts.fragment
    except ValueError:
        sound = False
    if value and (not sound or any(char in value for char in " ,\t\n")):
        raise ValueError("is one address, like nats://host:4222 or tls://user:password@host:4222")
    return value


def _divides_a_second(value: float) -> float:
    if abs(1 / value - round(1 / value)) > 1e-9:
        raise ValueError("does not divide one second; use 1, 0.5, 0.2, 0.1, 0.05, ...")
    return value


def _features(value: tuple[str, ...]) -> tuple[str, ...]:
    if set(value) - set(FEATURES) or len(set(value)) != len(value) or not {"cpu", "memory"} <= set(value):
        raise ValueError(f"are different names out of {', '.join(FEATURES)}; cpu and memory must be among them")
    return value


Seconds = Annotated[float, Field(gt=0, le=86_400 * 366)]
Port = Annotated[int, Field(ge=0, le=65_535)]
Bytes = Annotated[int, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]


class Data(Section):
    """Where files live."""

    dir: Path = Field(default_factory=_data_home, description="folder of streams, history and addresses.json")
    min_free_bytes: Bytes = Field(
        32 << 20,
        description="free space below which nothing is started; a minute of one node's streams and history",
    )


class Nats(Section):
    """The message bus."""

    url: Annotated[str, AfterValidator(_server_url)] = Field(
        "", description="server to use; empty: an embedded one (up), or nats://127.0.0.1:4222"
    )
    port: Port = Field(4222, description="port of the embedded server; the next free one if it is taken, 0: any")
    connect_timeout_seconds: Seconds = Field(5, description="for one attempt; a loopback connect takes under 0.1")
    request_timeout_seconds: Seconds = Field(5, description="for one acknowledgement; covers a leader election")
    ping_interval_seconds: int = Field(
        5, ge=1, le=600, description="a dead server is noticed after two; the client's 120 is deaf"
    )
    telemetry_max_age_seconds: Seconds = Field(3600, description="how long raw telemetry can be replayed")
    telemetry_max_bytes: Bytes = Field(1 << 30, description="bound on the telemetry stream's file; 1 h of 250 nodes")
    estimates_max_age_seconds: Seconds = Field(3600, description="as long as telemetry, so that history can catch up")
    estimates_max_bytes: Bytes = Field(1 << 30, description="bound on the estimates stream's file")
    events_max_age_seconds: Seconds = Field(7 * 86_400, description="dead letters wait a week for somebody to look")
    events_max_bytes: Bytes = Field(128 << 20, description="bound on dead letters and decisions")
    duplicate_window_seconds: Seconds = Field(
        120, description="a retry within it is stored once; folds and history skip a later one by its seq"
    )
    partitions: int = Field(PARTITIONS, ge=1, le=256, description="shards of nodes; fixed when the stream is made")


class Http(Section):
    """Metrics and health of a service."""

    host: str = Field("127.0.0.1", description="address to listen on; loopback unless told otherwise")
    port: Port = Field(9470, description="port; up gives it to the metrics sink and any free one to the others")


class Sample(Section):
    """What the agent measures."""

    node: Annotated[str, AfterValidator(_node_name)] = Field("", description="node name; empty: this host's name")
    interval_seconds: Annotated[float, AfterValidator(_divides_a_second)] = Field(
        0.1,
        ge=0.01,
        le=1,
        description="10 Hz: container spikes last about 0.2 s and must be seen to be removed",
    )
    buffer_blocks: int = Field(
        600, ge=1, description="newest blocks kept while the server is away: ten minutes, under 1 MB"
    )
    proc: Path = Field(Path("/proc"), description="where the host's /proc is mounted")
    cgroup: Path = Field(Path("/sys/fs/cgroup"), description="where the host's cgroup tree is mounted")

    @property
    def samples(self) -> int:
        """Samples in a block of one second."""
        return round(1 / self.interval_seconds)

    @property
    def node_name(self) -> str:
        """The node's name: the setting, or this host's."""
        return self.node or socket.gethostname()


class Smoothing(Section):
    """How short spikes are removed."""

    form: Literal["running_median", "dynamic_ema"] | None = Field(
        None, description="default: running_median; dynamic_ema in the carico variant"
    )
    window: int = Field(7, ge=3, le=31, description="samples; 7 at 10 Hz removes 0.3 s and follows a step in 0.4 s")
    publish: bool = Field(True, description="publish smoothed blocks")


class ModelSettings(Section):
    """How the workload is learned."""

    variant: Literal["default", "carico"] = Field(
        "default", description="carico: every step as the dissertation has it"
    )
    features: Annotated[tuple[str, ...], AfterValidator(_features)] = Field(
        FEATURES, description="rows of the model; availability is made of cpu and memory alone"
    )
    rank: int = Field(3, ge=1, le=64, description="kept directions of the reference form; 3 loses under 0.1 % of k")
    tau_seconds: Seconds = Field(10, description="memory of a node's model")
    global_weight: Fraction = Field(0.5, description="share of the global model in a node's signal")
    silent_seconds: Seconds = Field(30, description="a node without a block for so long leaves the global model")


class Estimate(Section):
    """How cost and capacity are estimated, and what fits means."""

    form: Literal["least_squares", "kalman_dual", "kalman_joint", "kalman_delta"] | None = Field(
        None, description="default: least_squares; kalman_dual in the carico variant"
    )
    slowdown: float = Field(2.0, ge=1, le=2, description="mean slowdown that a pod may suffer; 2 is the dissertation's")
    headroom_cpu: float = Field(0.0, ge=0, lt=1, description="share of CPU never given away")
    headroom_memory: float = Field(0.0, ge=0, lt=1, description="share of memory never given away")
    memory_seconds: Seconds = Field(300, description="how long evidence of a pod's cost counts")
    level_seconds: Seconds = Field(1, description="how fast the idle baseline follows")
    pod_cores: float = Field(0.1, gt=0, description="reference pod, kube-scheduler's stand-in for one without requests")
    pod_memory_bytes: Bytes = Field(200 << 20, description="reference pod, kube-scheduler's stand-in")
    prior_deviation: float = Field(0.5, gt=0, description="relative standard deviation of the reference pod's cost")
    max_pods: int = Field(110, gt=0, le=10_000, description="pods that a node may run; the kubelet's default")
    process_noise: float = Field(1e-4, ge=0, description="Q of the Kalman forms; larger ones oscillate")
    settle_seconds: Seconds = Field(2, description="estimators hold so long after the pod count changed; starts spike")
    change_pods: float = Field(0.05, ge=0, description="a smaller change of availability waits for the next report")
    report_seconds: Seconds = Field(4, description="longest time between two reports of a node")


class Process(Section):
    """How processors run."""

    checkpoint_seconds: Seconds = Field(5, description="replay after a crash is at most this long")
    tick_seconds: float = Field(0.01, ge=0, le=1, description="messages that arrive within it are folded together")
    batch: int = Field(500, ge=1, le=10_000, description="messages asked for at once")


class History(Section):
    """Parquet files and the views over them."""

    dir: Path | None = Field(None, description="folder; default: history in the data folder")
    flush_seconds: Seconds = Field(5, description="rows are in a file after it; fewer seconds, smaller files")
    retention_seconds: Seconds = Field(7 * 86_400, description="older hours are dropped")
    buffer_rows: int = Field(
        500_000, ge=1000, description="rows held while the disk is full; the rest stays in the stream"
    )


class Cache(Section):
    """The scheduler cache."""

    expiry_seconds: Seconds = Field(30, description="an older availability is absent: seven missed reports")


class Log(Section):
    """What services say."""

    level: Literal["debug", "info", "warning", "error"] | None = Field(
        None, description="least severity shown; default: info for a service, warning under up, which has a screen"
    )
    format: Literal["auto", "json", "text"] = Field("auto", description="auto: text on a terminal, else json")


class Settings(Section):
    """All settings of all services."""

    prefix: str = Field("spazio", pattern=r"^[a-z0-9-]{1,32}$", description="first token of subjects, name of streams")
    data: Data = Field(default_factory=Data)
    nats: Nats = Nats()
    http: Http = Http()
    sample: Sample = Sample()
    smoothing: Smoothing = Smoothing()
    model: ModelSettings = ModelSettings()
    estimate: Estimate = Estimate()
    process: Process = Process()
    history: History = History()
    cache: Cache = Cache()
    log: Log = Log()

    @property
    def nats_url(self) -> str:
        """Server that a service connects to."""
        return self.nats.url or f"nats://127.0.0.1:{self.nats.port}"

    @property
    def nats_shown(self) -> str:
        """The server's address as it may be shown and logged: without user and password."""
        scheme, separator, rest = self.nats_url.rpartition("://")
        return f"{scheme}{separator}{rest.rpartition('@')[2]}"

    @property
    def history_dir(self) -> Path:
        """Folder of the history."""
        return self.history.dir or self.data.dir / "history"

    @property
    def smoothing_form(self) -> str:
        """Smoothing in force."""
        return self.smoothing.form or ("dynamic_ema" if self.model.variant == "carico" else "running_median")

    @property
    def estimate_form(self) -> str:
        """Estimator in force."""
        return self.estimate.form or ("kalman_dual" if self.model.variant == "carico" else "least_squares")


def options() -> Iterator[tuple[str, str, Any]]:
    """Yield (section, field, field info) of every setting; top-level ones have the section ``""``."""
    for section, info in Settings.model_fields.items():
        kind = info.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            for field, field_info in kind.model_fields.items():
                yield section, field, field_info
        else:
            yield "", section, info


def option_name(section: str, field: str) -> str:
    """Return the setting's flat name, as in the environment but lower case: `nats_port`."""
    return f"{section}_{field}" if section else field


def load(
    flags: Mapping[str, str | None] | None = None,
    *,
    config: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Settings:
    """Merge command line, environment and file into settings.

    Args:
        flags: Values by flat name; None means not given.
        config: TOML file; default: the one that `SPAZIO_CONFIG` names, if any.
        environ: Environment to read.

    Raises:
        SettingsError: With every fault: what, where it was set, and what would be right.
    """
    faults: list[str] = []
    merged: dict[str, Any] = {}
    origin: dict[tuple[str, ...], str] = {}
    path = config or (Path(environ["SPAZIO_CONFIG"]) if environ.get("SPAZIO_CONFIG") else None)
    if path is not None:
        _merge_file(path, merged, origin, faults)
    for section, field, _ in options():
        flat = option_name(section, field)
        given = (
            ("--" + flat.replace("_", "-"), (flags or {}).get(flat)),
            (ENV + flat.upper(), environ.get(ENV + flat.upper())),
        )
        for where, value in given:
            if value is None or (where.startswith(ENV) and value == ""):
                continue
            target = merged.setdefault(section, {}) if section else merged
            if not isinstance(target, dict):
                break
            target[field] = value.split(",") if flat == "model_features" else value
            origin[(section, field) if section else (field,)] = where
            break
    try:
        settings = Settings.model_validate(merged)
    except ValidationError as error:
        faults += [_fault(item["loc"], item["msg"], item["input"], item["type"], origin) for item in error.errors()]
    if faults:
        raise SettingsError(faults)
    return settings


def unknown_environment(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return one warning for each `SPAZIO_` variable that no setting reads.

    A warning and not a fault: Kubernetes sets such variables itself for a service that is called spazio.
    """
    known = {ENV + option_name(section, field).upper() for section, field, _ in options()} | _OTHER_ENV
    return [
        f"{name} is no setting{_hint(name, known)}"
        for name in sorted(environ)
        if name.startswith(ENV) and name not in known
    ]


def _merge_file(path: Path, merged: dict[str, Any], origin: dict[tuple[str, ...], str], faults: list[str]) -> None:
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        faults.append(f"{path}: cannot be read: {error.strerror}; name an existing TOML file with --config")
        return
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        faults.append(f"{path}: is not TOML: {error}")
        return
    for key, value in content.items():
        merged[key] = dict(value) if isinstance(value, dict) else value
        origin[(key,)] = f"{path} {key}"
        for field in value if isinstance(value, dict) else ():
            origin[(key, field)] = f"{path} [{key}] {field}"


def _fault(
    location: tuple[int | str, ...],
    message: str,
    value: object,
    kind: str,
    origin: Mapping[tuple[str, ...], str],
) -> str:
    names = tuple(str(part) for part in location)
    where = origin.get(names[:2]) or origin.get(names[:1]) or ".".join(names)
    if kind == "extra_forbidden":
        known = {field for section, field, _ in options() if section == (names[0] if len(names) > 1 else "")}
        known |= set(Settings.model_fields) if len(names) == 1 else set()
        return f"{where}: there is no such setting{_hint(names[-1], known)}"
    secret = names == ("nats", "url")
    shown = f" (is {value!r})" if isinstance(value, str | int | float | bool) and not secret else ""
    return f"{where}: {message.removeprefix('Value error, ')}{shown}"


def _hint(name: str, known: set[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {close[0]}?" if close else ""


def environment(settings: Settings) -> dict[str, str]:
    """Return the environment that makes `load` give these settings; what is at its default is left out."""
    result: dict[str, str] = {}
    for section, field, info in options():
        value = getattr(getattr(settings, section) if section else settings, field)
        if value is None or value == info.get_default(call_default_factory=True):
            continue
        text = ",".join(value) if isinstance(value, tuple) else str(value)
        result[ENV + option_name(section, field).upper()] = text
    return result
