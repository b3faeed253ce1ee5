"""The doctor's words on what the services of `spazio up` report of themselves."""

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus

from schemas.settings import Settings
from spazio import count
from spazio.service import addresses
from spazio.service.host import Finding, unchecked
from spazio.service.liveness import probe

NAME = "services"
_LONGEST = 1 << 16


def check(settings: Settings, seconds: float) -> Finding:
    """Ask every service for its problems, such as what a processor leaves out because it cannot keep up.

    Args:
        settings: All settings; the data folder names the services.
        seconds: Time limit for each.
    """
    content = addresses.read(settings)
    services, pids = content.get("services"), content.get("pids")
    killed = isinstance(pids, dict) and not addresses.is_alive(pids.get("up"))
    if not isinstance(services, dict) or not services or killed:
        return unchecked(NAME, "unknown whether they have problems", "no `spazio up` runs", "see pipeline")
    problems = [problem for name, address in sorted(services.items()) for problem in _problems(name, address, seconds)]
    if problems:
        return Finding(NAME, False, "; ".join(problems), "see there", "do what it says, or read the service's log")
    return Finding(NAME, True, f"no problem in {count.of(len(services), 'service')}")


def _problems(name: str, address: object, seconds: float) -> Iterator[str]:
    """Yield the problems of one service, each as a sentence."""
    if not isinstance(address, str) or not address.startswith(("http://", "https://")):
        yield f"{name}: {addresses.FILE} has no address of it"
        return
    try:
        with _OPENER.open(f"{address}/readyz", timeout=seconds) as answer:
            answer.read(_LONGEST)
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.SERVICE_UNAVAILABLE:
            yield from (f"{name}: {part}: {reason}" for part, reason in _reported(error.read(_LONGEST)))
        else:
            yield f"{name}: {address} answers {error.code} {error.reason}"
    except (OSError, ValueError, http.client.HTTPException):
        yield f"{name}: {address} does not answer"


# By no proxy, and as `up` itself asks.
_OPENER = urllib.request.build_opener(
    urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=probe.unverified())
)


def _reported(body: bytes) -> Iterator[tuple[str, str]]:
    try:
        problems = json.loads(body)["problems"]
        yield from ((str(part), str(reason)) for part, reason in problems.items())
    except (ValueError, LookupError, TypeError, AttributeError):
        yield "readyz", "its answer cannot be read"
