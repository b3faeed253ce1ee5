"""How programs ask for the ledgers of all services: one request on a subject, which every service answers.

No stream stores it. The request holds a token, and the answers come on the request's subject with this token behind
it: services are in other accounts than who asks, and a reply subject could be one to which the asker may not publish. A
service that may not listen there works on; its accounts are only missing in the answers.

A nats-server that loads several accounts at once, as when all clients come back after its restart, can hold an import
of one account from another several times, until it restarts again (2.15.1). It then delivers what crosses between the
two as often: the request, or an answer. So a service answers a token once, and who asks takes equal answers once.
"""

import asyncio
import json
import logging
import os
import re
import secrets
import socket
from collections import deque
from typing import NamedTuple

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from bus.accounting import ledger
from bus.accounting.ledger import LEDGER, Statement

log = logging.getLogger(__name__)

_MOST = 10_000
_ANSWERED = 100  # tokens that a service remembers; copies of a request arrive together
_TOKEN = re.compile(rb"[0-9a-f]{1,64}")


class Report(NamedTuple):
    """The accounts of one service."""

    service: str
    host: str
    pid: int
    statements: tuple[Statement, ...]


async def serve(client: Client, subject: str, service: str) -> None:
    """Answer requests for this process's ledger as long as the connection lives; a failure is only logged."""
    answered: deque[bytes] = deque(maxlen=_ANSWERED)

    async def answer(message: Msg) -> None:
        if not _TOKEN.fullmatch(message.data) or message.data in answered:
            return
        answered.append(message.data)
        body = {
            "service": service,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "accounts": [statement._asdict() for statement in LEDGER.statements()],
        }
        try:
            await client.publish(f"{subject}.{message.data.decode()}", json.dumps(body).encode())
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
    answers: set[int] = set()  # hashes, since contents can be large

    async def collect(message: Msg) -> None:
        if len(reports) >= _MOST or hash(message.data) in answers:
            return
        answers.add(hash(message.data))
        try:
            body = json.loads(message.data)
            statements = tuple(ledger.parse(each) for each in body["accounts"])
            service, host = ledger.bounded(body["service"]), ledger.bounded(body["host"])
            reports.append(Report(service, host, int(body["pid"]), statements))
        except (ValueError, KeyError, TypeError):
            log.warning("ledger.unreadable", extra={"subject": subject})

    token = secrets.token_hex(16)
    listening = await client.subscribe(f"{subject}.{token}", cb=collect)
    try:
        await client.publish(subject, token.encode())
        await asyncio.sleep(wait_seconds)
    finally:
        await listening.unsubscribe()
    return sorted(reports, key=lambda report: (report.service, report.host, report.pid))
