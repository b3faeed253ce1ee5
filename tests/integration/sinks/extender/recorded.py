"""Requests as schedulers sent them, and how many were answered and timed."""

from pathlib import Path

from prometheus_client import REGISTRY

RECORDED = Path(__file__).parents[3] / "golden" / "extender"


def recorded(name: str) -> bytes:
    return (RECORDED / f"{name}.http").read_bytes()


def counted(verb: str, status: str) -> float:
    labels = {"verb": verb, "status": status}
    return REGISTRY.get_sample_value("spazio_extender_requests_total", labels) or 0


def timed(verb: str) -> float:
    return REGISTRY.get_sample_value("spazio_extender_request_seconds_count", {"verb": verb}) or 0
