"""Every setting in one place, with its unit, its default and the reason for that default.

A setting `field` of a section is given as `--section-field` on the command line, as `SPAZIO_SECTION_FIELD` in the
environment, or as `field` under `[section]` in a TOML file; the first of these that gives a value wins. One pass
finds all faults, so one run reports everything that needs correction.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from schemas.sections.bus import Data, Http, Log, Nats, Otlp, without_password
from schemas.sections.dashboard import Dashboard
from schemas.sections.estimation import Estimate, ModelSettings, Policy, Smoothing
from schemas.sections.generator import Replay, Simulated
from schemas.sections.govern import Govern
from schemas.sections.measurement import CONTAINER_SOURCES, Edge, Kube, Runtime, Sample
from schemas.sections.output import Output
from schemas.sections.placement import Extender
from schemas.sections.prediction import Forecast, Predict, Reject
from schemas.sections.section import Commas, Section
from schemas.sections.service import Cache, History, Process

ENV = "SPAZIO_"
_OTHER_ENV = {"SPAZIO_CONFIG"}
_MOST_BYTES = 256 << 10  # of a file; one with every setting, and its description as a comment, has 90 kB
# Python's parser takes memory with the square of the parts of a key.
_LONG_KEY = re.compile(rb"""(?<![\w"'-])(?:(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){32}""")
_MOST_SHOWN = 20  # faults; more are not read, and mostly of one cause
_LONGEST_SHOWN = 100  # characters of a name or value in a fault


class SettingsError(ValueError):
    """Unusable settings; the message has one line for each of the first faults, and says how many more there are."""

    def __init__(self, faults: list[str], more: int = 0) -> None:
        """Combine faults, a sentence each, and the number of others that there are."""
        self._arguments = faults, more
        self.faults, self.count = faults[:_MOST_SHOWN], len(faults) + more
        if self.count > len(self.faults):
            self.faults.append(f"and {self.count - len(self.faults)} more")
        super().__init__("\n".join(self.faults))

    def __reduce__(self) -> tuple[type[Self], tuple[list[str], int]]:
        """Return what makes an equal error in another process; an exception's own is made of its message."""
        return type(self), self._arguments


def _containers(value: tuple[str, ...]) -> tuple[str, ...]:
    if value not in (("auto",), ("none",)) and (not value or set(value) - set(CONTAINER_SOURCES)):
        raise ValueError(f"is auto, none, or names out of {', '.join(CONTAINER_SOURCES)} with commas between")
    return value


class Settings(Section):
    """All settings of all services."""

    prefix: str = Field(
        "spazio",
        pattern=r"^[a-z0-9-]{1,32}$",
        description="First token of all subjects and, in upper case, of the names of streams and buckets. Pipelines "
        "with different prefixes share a server without meeting.",
    )
    containers: Annotated[tuple[str, ...], Commas, AfterValidator(_containers)] = Field(
        ("auto",),
        description="Container sources of the agent, out of cgroup, bundle, docker and containerd. auto: every source "
        "that it can use; each adds what the others miss. none: no container events.",
    )
    data: Data = Field(default_factory=Data)
    nats: Nats = Nats()
    http: Http = Http()
    otlp: Otlp = Otlp()
    sample: Sample = Sample()
    edge: Edge = Edge()
    runtime: Runtime = Runtime()
    kube: Kube = Kube()
    smoothing: Smoothing = Smoothing()
    model: ModelSettings = ModelSettings()
    policy: Policy = Policy()
    estimate: Estimate = Estimate()
    predict: Predict = Predict()
    reject: Reject = Reject()
    forecast: Forecast = Forecast()
    process: Process = Process()
    history: History = History()
    cache: Cache = Cache()
    extender: Extender = Extender()
    output: Output = Output()
    govern: Govern = Govern()
    dashboard: Dashboard = Dashboard()
    simulated: Simulated = Simulated()
    replay: Replay = Replay()
    log: Log = Log()

    @model_validator(mode="after")
    def _combined(self) -> Self:
        form, reference = self.estimate.form or "", self.model.variant == "carico"
        if form.startswith("kalman") and not reference:
            raise ValueError(
                f"estimate form {form} estimates from the reference signal; add --model-variant carico, or leave "
                "--estimate-form out (on the default model it is off by 9 to 21 pods)"
            )
        if form == "composed" and reference:
            raise ValueError(
                "estimate form composed does not go with --model-variant carico, which has no policy of slowdown; "
                "leave one of them out"
            )
        return self

    @property
    def nats_url(self) -> str:
        """Server that a service connects to."""
        return self.nats.url or f"nats://127.0.0.1:{self.nats.port}"

    @property
    def nats_shown(self) -> str:
        """The server's address without user and password, for screens and logs."""
        scheme, separator, rest = self.nats_url.rpartition("://")
        return f"{scheme}{separator}{rest.rpartition('@')[2]}"

    @property
    def history_dir(self) -> Path:
        """Folder of the history."""
        return self.history.dir or self.data.dir / "history"

    @property
    def smoothing_form(self) -> str:
        """Form of smoothing that is used."""
        return self.smoothing.form or ("dynamic_ema" if self.model.variant == "carico" else "running_median")

    @property
    def estimate_form(self) -> str:
        """Estimator that is used."""
        return self.estimate.form or ("kalman_dual" if self.model.variant == "carico" else "composed")

    @property
    def slowdown(self) -> float:
        """Mean slowdown up to which pods fit."""
        return self.policy.slowdown or self.estimate.slowdown


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
        SettingsError: With every fault: what is wrong, where it was set, and what is right.
    """
    faults, more = list[str](), 0
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
            target[field] = value
            origin[(section, field) if section else (field,)] = where
            break
    try:
        settings = Settings.model_validate(merged)
    except ValidationError as error:
        items = error.errors(include_url=False, include_context=False)
        more = len(items[_MOST_SHOWN:])
        faults += [
            _fault(item["loc"], item["msg"], item["input"], item["type"], origin) for item in items[:_MOST_SHOWN]
        ]
    if faults:
        raise SettingsError(faults, more)
    return settings


def unknown_environment(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return one warning for each `SPAZIO_` variable that no setting reads.

    These are warnings and not faults: Kubernetes sets such variables for a service that is named spazio.
    """
    names = {ENV + option_name(section, field).upper() for section, field, _ in options()} | _OTHER_ENV
    return [
        f"{name} is no setting{_hint(name, names)}"
        for name in sorted(environ)
        if name.startswith(ENV) and name not in names
    ]


def toml(path: Path, most_bytes: int = _MOST_BYTES) -> dict[str, Any]:
    """Return the content of a TOML file that a user names.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not TOML, larger, or nested too deeply.
    """
    with path.open("rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"it has more than {most_bytes} bytes")
    if _LONG_KEY.search(content):
        raise ValueError("a key has more than 32 parts")
    try:
        return tomllib.loads(content.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _merge_file(path: Path, merged: dict[str, Any], origin: dict[tuple[str, ...], str], faults: list[str]) -> None:
    try:
        content = toml(path)
    except OSError as error:
        faults.append(f"{path}: cannot be read: {error.strerror}; name an existing TOML file with --config")
        return
    except ValueError as error:
        faults.append(f"{path}: is not TOML: {error}")
        return
    for key, value in content.items():
        merged[key] = dict(value) if isinstance(value, dict) else value
        origin[(key,)] = f"{path} {_short(key)}"
        for field in value if isinstance(value, dict) else ():
            origin[(key, field)] = f"{path} [{_short(key)}] {_short(field)}"


def _fault(
    location: tuple[int | str, ...],
    message: str,
    value: object,
    kind: str,
    origin: Mapping[tuple[str, ...], str],
) -> str:
    names = tuple(str(part) for part in location)
    where = origin.get(names[:2]) or origin.get(names[:1]) or ".".join(names) or "settings"
    if kind == "extra_forbidden":
        fields = {field for section, field, _ in options() if section == (names[0] if len(names) > 1 else "")}
        fields |= set(Settings.model_fields) if len(names) == 1 else set()
        return f"{where}: there is no such setting{_hint(names[-1], fields)}"
    secret = names == ("nats", "url")
    text = repr(without_password(value) if isinstance(value, str) else value)
    shown = f" (is {_short(text)})" if isinstance(value, str | int | float | bool) and not secret else ""
    return f"{where}: {message.removeprefix('Value error, ')}{shown}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _hint(name: str, candidates: set[str]) -> str:
    close = difflib.get_close_matches(_short(name), candidates, 1)
    return f"; did you mean {close[0]}?" if close else ""


def environment(settings: Settings) -> dict[str, str]:
    """Return the environment from which `load` makes these settings; it omits settings at their default."""
    result: dict[str, str] = {}
    for section, field, info in options():
        value = getattr(getattr(settings, section) if section else settings, field)
        if value is None or value == info.get_default(call_default_factory=True):
            continue
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        result[ENV + option_name(section, field).upper()] = text
    return result
