"""How programs ask for the ledgers of all services: one request on a subject, which every service answers.

No stream stores it. A service that may not listen there works on; its accounts are only missing in the answers.
"""

import asyncio
import json
import logging
import os
import socket
from typing import NamedTuple

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from bus.accounting import ledger
from bus.accounting.ledger import LEDGER, Statement

log = logging.getLogger(__name__)

_MOST = 10_000


class Report(NamedTuple):
    """The accounts of one service."""

    service: str
    host: str
    pid: int
    statements: tuple[Statement, ...]


async def serve(client: Client, subject: str, service: str) -> None:
    """Answer requests for this process's ledger as long as the connection lives; a failure is only logged."""

    async def answer(message: Msg) -> None:
        if not message.reply:
            return
        body = {
            "service": service,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "accounts": [statement._asdict() for statement in LEDGER.statements()],
        }
        try:
            await message.respond(json.dumps(body).encode())
        except (nats.errors.Error, OSError) as error:
            log.debug("ledger.answer_failed", extra={"reason": repr(error)})

    try:
        await client.subscribe(subject, cb=answer)
    except (nats.errors.Error, OSError) as error:
        log.warning("ledger.unavailable", extra={"subject": subject, "reason": repr(error)})


async def ask(client: Client, subject: str, *, wait_seconds: float) -> list[Report]:
    """Ask all services and return the reports of those that answer in time, sorted by service, host and pid.

    Raises:
        BusError: The request could not be sent.
    """
    reports: list[Report] = []

    async def collect(message: Msg) -> None:
        if len(reports) >= _MOST or not message.data:  # nothing: no service listens
            return
        try:
            body = json.loads(message.data)
            statements = tuple(ledger.parse(each) for each in body["accounts"])
            service, host = ledger.bounded(body["service"]), ledger.bounded(body["host"])
            reports.append(Report(service, host, int(body["pid"]), statements))
        except (ValueError, KeyError, TypeError):
            log.warning("ledger.unreadable", extra={"subject": subject})

    listening = await client.subscribe(client.new_inbox(), cb=collect)
    try:
        await client.publish(subject, reply=listening.subject)
        await asyncio.sleep(wait_seconds)
    finally:
        await listening.unsubscribe()
    return sorted(reports, key=lambda report: (report.service, report.host, report.pid))
