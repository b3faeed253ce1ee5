"""All sections but those of prediction and placement under one name; each is defined in the module of its topic."""

from schemas.sections.bus import Data, Http, Log, Nats
from schemas.sections.estimation import FEATURES, Estimate, ModelSettings, Policy, Smoothing
from schemas.sections.generator import SIMULATED_KINDS, Replay, Simulated
from schemas.sections.measurement import CONTAINER_SOURCES, Edge, Kube, Runtime, Sample
from schemas.sections.section import RELOAD, Bytes, Commas, Fraction, Port, Seconds, Section
from schemas.sections.service import Cache, History, Process

__all__ = [
    "CONTAINER_SOURCES",
    "FEATURES",
    "RELOAD",
    "SIMULATED_KINDS",
    "Bytes",
    "Cache",
    "Commas",
    "Data",
    "Edge",
    "Estimate",
    "Fraction",
    "History",
    "Http",
    "Kube",
    "Log",
    "ModelSettings",
    "Nats",
    "Policy",
    "Port",
    "Process",
    "Replay",
    "Runtime",
    "Sample",
    "Seconds",
    "Section",
    "Simulated",
    "Smoothing",
]
