"""Log format of services: a constant event name and fields, as JSON for programs or as text for people."""

import json
import logging
import sys
import time

from schemas.sections.bus import Log
from spazio.terminal import clean

_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


class Json(logging.Formatter):
    """One JSON object per line."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON."""
        line: dict[str, object] = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "service": self._service,
            "event": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class Text(logging.Formatter):
    """A line for people."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text."""
        fields = " ".join(f"{key}={clean.text(value)}" for key, value in _fields(record).items())
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        event = clean.text(record.getMessage())
        line = f"{clock} {record.levelname.lower():7} {self._service:8} {event} {fields}".rstrip()
        return f"{line}\n{clean.lines(self.formatException(record.exc_info))}" if record.exc_info else line


def configure(settings: Log, service: str) -> None:
    """Send all records to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    text = settings.format == "text" or (settings.format == "auto" and sys.stderr.isatty())
    handler.setFormatter(Text(service) if text else Json(service))
    logging.basicConfig(level=(settings.level or "info").upper(), handlers=[handler], force=True)
    logging.getLogger("asyncio").setLevel("WARNING")
    logging.getLogger("nats").setLevel("ERROR")
