"""The state of the pipeline: streams, who folds what, what became of every message, and dead letters."""

import asyncio
import time
from typing import Any

from bus import errors
from bus.accounting import dead_letters, exchange, retention
from bus.api import request
from bus.client import Client
from bus.folding import worker_pool
from schemas import role
from schemas.settings import Settings
from schemas.subject import Names

_WAIT_SECONDS = 0.4


async def read(client: Client, settings: Settings) -> dict[str, Any]:
    """Return the state as JSON; what cannot be read is missing, and `errors` says why.

    Args:
        client: Connection.
        settings: All settings.
    """
    names = Names(settings.prefix)
    parts = {
        "streams": _streams(client, names, settings.nats.request_timeout_seconds),
        "retention": _retention(client, settings),
        "replicas": _replicas(client, settings.prefix),
        "ledger": _ledger(client, names),
        "letters": dead_letters.read(client, names.dead_letters, settings.nats.request_timeout_seconds),
    }
    results = await asyncio.gather(*parts.values(), return_exceptions=True)
    state: dict[str, Any] = {"at": round(time.time() * 1e6), "errors": {}}
    for name, result in zip(parts, results, strict=True):
        if not isinstance(result, BaseException):
            state[name] = result
        elif isinstance(result, (*errors.REQUEST_FAILED, LookupError, ValueError)):
            state["errors"][name] = str(result) or type(result).__name__
        else:
            raise result
    return state


async def _streams(client: Client, names: Names, timeout_seconds: float) -> list[dict[str, Any]]:
    wanted = (names.telemetry, names.estimates, names.events, names.dead_letters)
    return [await _stream(client, name, timeout_seconds) for name in wanted]


async def _stream(client: Client, name: str, timeout_seconds: float) -> dict[str, Any]:
    info = await request(client, f"STREAM.INFO.{name}", {}, timeout_seconds)
    state, config = info["state"], info["config"]
    return {
        "name": name,
        "messages": state["messages"],
        "bytes": state["bytes"],
        "most": config["max_bytes"],
        "first": state["first_ts"],
        "last": state["last_ts"],
        "sequence": state["last_seq"],
    }


async def _retention(client: Client, settings: Settings) -> list[dict[str, Any]]:
    streams = await retention.read(client, settings, settings.nats.request_timeout_seconds)
    return [stream._asdict() for stream in streams]


async def _replicas(client: Client, prefix: str) -> list[dict[str, Any]]:
    return [replica._asdict() for replica in await worker_pool.replicas(client, prefix, wait_seconds=_WAIT_SECONDS)]


async def _ledger(client: Client, names: Names) -> list[dict[str, Any]]:
    reports = await exchange.ask(client, names.of(role.FLOW), wait_seconds=_WAIT_SECONDS)
    return [
        {
            "service": report.service,
            "host": report.host,
            "pid": report.pid,
            "accounts": [statement._asdict() for statement in report.statements],
        }
        for report in reports
    ]
