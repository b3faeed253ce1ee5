"""The sections that every process has: where files live, the message bus, the HTTP port, the log."""

import os
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from schemas.sections.section import RELOAD, Bytes, Folder, OptionalLocation, Port, Seconds, Section
from schemas.subject import PARTITIONS, PARTITIONS_MAX


def without_password(text: str) -> str:
    """Return a value without what may be user, password or token of an address, also of a wrong one in a wrong place.

    >>> without_password("https://u:p@h/a"), without_password("token@h1,nats://u:p@h2"), without_password("https://h/a")
    ('https://…@h/a', '…@h2', 'https://h/a')
    """
    scheme, mark, _ = text.partition("://")
    begin = len(scheme + mark) if text.count("://") == 1 and "@" not in scheme else 0
    at = text.rfind("@")
    return f"{text[:begin]}…{text[at:]}" if at > begin else text


def _data_home() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share").absolute() / "spazio"


def _server_url(value: str) -> str:
    try:
        parts = urlsplit(value if "://" in value else f"nats://{value}")
        sound = bool(parts.hostname) and parts.scheme in ("nats", "tls") and parts.port != 0 and not parts.fragment
    except ValueError:
        sound = False
    if value and (not sound or any(char in value for char in " ,\t\n")):
        raise ValueError("is one address, like nats://host:4222 or tls://user:password@host:4222")
    return value


class Data(Section):
    """Where files live."""

    dir: Folder = Field(
        default_factory=_data_home,
        description="Folder of the embedded server's streams, the history and addresses.json. The default follows the "
        "XDG convention for a user's data, so no privilege is needed.",
    )
    min_free_bytes: Bytes = Field(
        32 << 20,
        description="Free space, in bytes, without which `up` refuses to start. The default of 32 MiB holds about a "
        "minute of one node's streams and history.",
    )


class Nats(Section):
    """The message bus."""

    url: Annotated[str, AfterValidator(_server_url)] = Field(
        "",
        description="Address of the NATS server. Empty: `up` and `replay` start an embedded server, and other commands "
        "connect to 127.0.0.1 at `nats.port`.",
    )
    port: Port = Field(
        4222,
        description="Port of the embedded server. If it is taken, the server uses the next free one. 0: any free port. "
        "4222 is the standard port of NATS.",
    )
    credentials: OptionalLocation = Field(
        None,
        description="File with the credential of this service (`.creds`, as `spazio credentials` writes it). Empty: "
        "none, unless a `spazio up` on the same data folder has one for this command. A file, since options show in "
        "the list of processes. Read again at each connection, so a rotated one is used without a restart.",
    )
    ca: OptionalLocation = Field(
        None,
        description="File with the certificates (PEM) of the authorities that may sign the server's certificate. "
        "Empty: those of the operating system. Given, the connection must be TLS.",
    )
    cert: OptionalLocation = Field(
        None,
        description="File with this client's certificate (PEM), for a server that verifies clients; `nats.key` has its "
        "key. Empty: none, which suits servers that use credentials.",
    )
    key: OptionalLocation = Field(
        None,
        description="File with the key (PEM) of `nats.cert`. Empty: `nats.cert` contains it.",
    )
    connect_timeout_seconds: Seconds = Field(
        5,
        description="Time limit of one attempt to connect, in seconds. A connection over loopback takes under 0.1 s; "
        "the default also covers slow links and TLS.",
    )
    request_timeout_seconds: Seconds = Field(
        5,
        description="Time limit of one request or acknowledgement, in seconds. The default outlasts the election of a "
        "new stream leader in a NATS cluster.",
    )
    ping_interval_seconds: int = Field(
        5,
        ge=1,
        le=600,
        description="Seconds between two pings of the NATS client. Two missed pings end the connection. The client's "
        "default of 120 s would leave a dead server unnoticed for four minutes.",
    )
    probe_seconds: float = Field(
        2,
        ge=0.1,
        le=60,
        description="Seconds between two checks that the server answers. After two checks without an answer the "
        "service reconnects. The default finds a dead connection within six seconds.",
    )
    telemetry_max_age_seconds: Seconds = Field(
        3600,
        description="Seconds for which the telemetry stream keeps a message. One hour lets processors and the history "
        "catch up after an outage.",
    )
    telemetry_max_bytes: Bytes = Field(
        1 << 30,
        description="Size limit of the telemetry stream, in bytes before compression; the oldest messages are dropped "
        "first. A second of a node with 20 pods has about 5 kB, so 1 GiB holds an hour of 50 such nodes, or three "
        "minutes of 1,000; on disk it takes a third of that.",
    )
    estimates_max_age_seconds: Seconds = Field(
        3600,
        description="Seconds for which the estimates stream keeps a message. The default is that of telemetry, so the "
        "history can catch up equally far on both.",
    )
    estimates_max_bytes: Bytes = Field(
        1 << 30,
        description="Size limit of the estimates stream, in bytes before compression; the oldest messages are dropped "
        "first. The default is that of telemetry.",
    )
    events_max_age_seconds: Seconds = Field(
        7 * 86_400,
        description="Seconds for which placement decisions are kept. One week leaves time to inspect a fault.",
    )
    events_max_bytes: Bytes = Field(
        128 << 20,
        description="Size limit of the stream of placement decisions, in bytes; the oldest are dropped first. "
        "These messages are rare, so 128 MiB suffices.",
    )
    dead_max_age_seconds: Seconds = Field(
        7 * 86_400,
        description="Seconds for which dead letters are kept. One week leaves time to inspect a fault.",
    )
    dead_max_bytes: Bytes = Field(
        64 << 20,
        description="Size limit of the stream of dead letters, in bytes; the oldest are dropped first. 64 MiB holds "
        "about 30,000 blocks. Dead letters have a stream of their own, so a flood of them evicts no decision.",
    )
    bucket_max_bytes: Bytes = Field(
        128 << 20,
        description="Size limit of each key-value bucket, in bytes. A full bucket refuses new keys and goes on taking "
        "new values of the keys that it has, so a flood of invented names evicts no real one; the scheduler cache "
        "drops its oldest rows instead. 128 MiB holds about 40,000 nodes or 60,000 pods.",
    )
    checkpoints_max_bytes: Bytes = Field(
        1 << 30,
        description="Size limit of the object store of checkpoints, in bytes. If it is full, the older checkpoints "
        "stay and the next holder of a part replays more. 1 GiB holds three copies of the state of 5,000 nodes.",
    )
    duplicate_window_seconds: Seconds = Field(
        30,
        description="Seconds within which the server stores a retried message only once. Folds and history recognise "
        "later retries by their sequence number. The server's default of two minutes costs more than storing the "
        "messages at thousands of nodes.",
    )
    replicas: int = Field(
        1,
        ge=1,
        le=5,
        description="Copies of each stream in a NATS cluster. 1 suits a single server; with 3 the streams survive the "
        "loss of one server.",
    )
    partitions: int = Field(
        PARTITIONS,
        ge=1,
        le=PARTITIONS_MAX,
        description="Partitions into which nodes are hashed, and so the largest number of replicas that share the "
        "work. It is fixed when the stream is created. Fewer partitions are folded in larger batches, which cost less: "
        "unless this is set, `spazio up` takes two for each of its processors where the server is its own, and "
        "`spazio replay` those of the recording, or one for each processor.",
    )


class Http(Section):
    """Metrics and health of a service."""

    host: str = Field(
        "127.0.0.1",
        description="Address on which a service serves /metrics, /healthz and /readyz. The default is loopback, since "
        "these endpoints have no authentication without `http.config_file`.",
    )
    port: Port = Field(
        9470,
        description="Port of /metrics, /healthz, /readyz and /targets. 0: any free port. Under `up` the metrics sink "
        "gets this port, which must be free, and the other services those behind it, as docs/operations.md lists; of "
        "these, one that is in use is replaced by any free one.",
    )
    config_file: OptionalLocation = Field(
        None,
        description="File in the format of Prometheus' web configuration (YAML): `tls_server_config` for HTTPS, and "
        "`basic_auth_users` with bcrypt hashes, as docs/web-config.md describes. A changed file is read again. Empty: "
        "plain HTTP without passwords.",
    )
    hung_seconds: Seconds = Field(
        30,
        description="Seconds for which a service may neither answer nor compute. Then `up` kills and restarts it, and "
        "a service whose event loop stands still ends by itself, so that any supervisor restarts it. A server that "
        "does not answer is no reason.",
    )
    busy_seconds: Seconds = Field(
        300,
        description="Seconds for which a service may fail to answer while it computes. Under overload a fold may take "
        "minutes, and a restart would begin it again.",
    )


def _collector_url(value: str) -> str:
    try:
        parts = urlsplit(value)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and not parts.username
    except ValueError:
        sound = False
    if value and (not sound or any(char in value for char in " ,\t\n")):
        raise ValueError(
            "is one address, like http://127.0.0.1:4318; a token or password goes into OTEL_EXPORTER_OTLP_HEADERS"
        )
    return value


class Otlp(Section):
    """Metrics pushed to an OpenTelemetry collector."""

    endpoint: Annotated[str, AfterValidator(_collector_url)] = Field(
        "",
        description="Address of a collector that takes OTLP over HTTP, like http://127.0.0.1:4318. Every service "
        "pushes what its /metrics shows. It needs the extra `otlp`. OpenTelemetry's environment variables, such as "
        "OTEL_EXPORTER_OTLP_HEADERS, count. Empty: nothing is pushed.",
    )
    seconds: Seconds = Field(
        15,
        description="Time between two pushes. The default is what Prometheus servers often scrape with.",
    )


class Log(Section):
    """Logging."""

    level: Literal["debug", "info", "warning", "error"] | None = Field(
        None,
        json_schema_extra=RELOAD,
        description="Least severity that is logged: debug, info, warning or error. Empty: info for a service; warning "
        "under `up`, which shows its state on the screen.",
    )
    format: Literal["auto", "json", "text"] = Field(
        "auto",
        json_schema_extra=RELOAD,
        description="Form of a log line: text, or json, which log collectors parse. auto: text on a terminal, "
        "otherwise json.",
    )
