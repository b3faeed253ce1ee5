"""New settings for a running service: SIGHUP makes it read its options, environment and file again.

Settings with any fault are refused as a whole, and the current ones stay. Of valid settings, all that may change are
applied; the log names the others, which need a restart.
"""

import json
import logging
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

from prometheus_client import Counter

from bus.access import private_file
from schemas import live
from schemas import settings as all_settings
from schemas.live import Change, Live
from schemas.settings import ENV, Settings, SettingsError
from spazio import option

log = logging.getLogger(__name__)

FILE = "settings.toml"
_UP_FILE = "up.toml"  # beside it: all settings of `up` that a backup takes
# What belongs to one machine or process, beside files, addresses and ports.
_OWN = {"sample_node", "kube_context", "process_replica"}
_ADDRESSES = {"host", "port", "url", "endpoint"}

RELOADS = Counter("spazio_settings_reloads_total", "times that settings were read again", ["outcome"])


def again(settings: Live, adapt: Callable[[Settings], Settings] = lambda settings: settings) -> Change | None:
    """Read the settings again and apply those that may change; None: they have faults, and nothing has changed.

    Args:
        settings: Current settings.
        adapt: Adapts settings as at the start of the service.
    """
    try:
        wanted = adapt(option.reread())
    except SettingsError as error:
        RELOADS.labels("refused").inc()
        log.error("settings.refused", extra={"faults": error.faults})  # noqa: TRY400 # the faults are enough
        return None
    change = settings.apply(wanted)
    RELOADS.labels("applied").inc()
    level = logging.WARNING if change.applied else logging.INFO
    log.log(level, "settings.reloaded", extra={"applied": ",".join(change.applied) or "nothing"})
    if change.waiting:
        log.warning("settings.deferred", extra={"settings": ",".join(change.waiting)})
    return change


class Hangup:
    """Meaning of SIGHUP: read the settings again, or end because the terminal of this process was closed.

    Made before the signal is handled: what was started to ignore it, as by `nohup`, does not end with its terminal.
    """

    def __init__(self) -> None:
        self._terminal = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and _has_terminal()

    def closed(self) -> bool:
        """Tell whether the terminal was closed."""
        return self._terminal and not _has_terminal()


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def write(settings: Settings, folder: Path) -> Path:
    """Write the settings that may change to a file for child services; return its path.

    Another file beside it has all settings that are not of this machine, as a backup takes them.

    Raises:
        OSError: The folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tables: dict[str, list[str]] = {}
    for section, field in live.changeable():
        value = getattr(getattr(settings, section), field)
        if value is not None:
            text = json.dumps(str(value), ensure_ascii=False)
            tables.setdefault(section, [f"[{section}]"]).append(f"{field} = {text}")
    path = folder / FILE
    private_file.replace(path, "".join(f"{line}\n" for lines in tables.values() for line in lines))
    if settings.log.level == "warning":  # what `up` takes if none is given
        settings = settings.model_copy(update={"log": settings.log.model_copy(update={"level": None})})
    private_file.replace(folder / _UP_FILE, f"{_signature(os.getpid())}\n{portable(settings)}")
    return path


def of_up(folder: Path, pid: object) -> str | None:
    """Return the settings that an `up` with this pid has written, as `portable` does; None: it has not."""
    with suppress(OSError, ValueError):
        first, _, rest = (folder / _UP_FILE).read_text(encoding="utf-8").partition("\n")
        if first == _signature(pid):
            return rest
    return None


def _signature(pid: object) -> str:
    return f"# process {pid}"


def portable(settings: Settings) -> str:
    """Return the settings other than the defaults as TOML, without files, addresses and names of this machine."""
    lines: list[str] = []
    environ = all_settings.environment(settings)
    for section, field, info in sorted(all_settings.options(), key=lambda option: option[0]):
        flat = all_settings.option_name(section, field)
        value = environ.get(ENV + flat.upper())
        if value is None or flat in _OWN or field.rpartition("_")[2] in _ADDRESSES or _has_path(info.annotation):
            continue
        if section and f"[{section}]" not in lines:
            lines.append(f"[{section}]")
        lines.append(f"{field} = {json.dumps(value, ensure_ascii=False)}")
    return "".join(f"{line}\n" for line in lines)


def _has_path(kind: Any) -> bool:
    return kind is Path or any(map(_has_path, get_args(kind)))


def fixed(settings: Settings, path: Path) -> dict[str, str]:
    """Return the environment of a service that reads the settings that may change from a file of `write`."""
    names = {ENV + all_settings.option_name(section, field).upper() for section, field in live.changeable()}
    environ = {name: value for name, value in all_settings.environment(settings).items() if name not in names}
    return environ | {"SPAZIO_CONFIG": str(path)}


def signal_reload(pid: int) -> None:
    """Make a service read its settings again; one that has just ended reads them when it restarts."""
    try:
        os.kill(pid, signal.SIGHUP)
    except ProcessLookupError:
        log.debug("settings.signal_failed", extra={"pid": pid})
