"""The settings of a replay: a folder, streams and a history of its own, so that live data stays as it is.

Settings of the environment and of a file describe the live pipeline. What would lead into its data counts for a replay
only where it is an option of the command.
"""

from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path

from producers.recorded.recording import Recording
from schemas.settings import Settings
from sinks.history import layout, view

PREFIX = "replay"
# Options without which the replay has its own.
OWN = frozenset(("history_dir", "prefix"))
_LONGEST_PREFIX = 32
_NODES_AT_ONCE = 500  # with 64 pods each, as many as have statistics in a partition (process.pods_max)
_ANY_SECONDS = 86_400.0 * 366 * 100  # the longest that settings take


class InUse(RuntimeError):
    """A folder or streams hold other data."""


def located(configured: Settings, path: Path) -> Path:
    """Return the path of a recording; `history`, where there is no such file, is the history of the live pipeline.

    Args:
        configured: Settings without the options of `OWN`.
        path: As it was given.
    """
    return configured.history_dir if path == Path("history") and not path.exists() else path


def isolated(settings: Settings, given: Collection[str]) -> Settings:
    """Return settings with which nothing of the live pipeline is written.

    Args:
        settings: Those of the command.
        given: Names of `OWN` that were options.

    Raises:
        InUse: The folder for the history has one.
    """
    # A recording is of any time, and one shifted to now and replayed fast runs ahead of the clock. No row of it may go.
    limits = {"retention_seconds": _ANY_SECONDS, "ahead_seconds": _ANY_SECONDS, "max_bytes": 0}
    limits["node_messages_per_minute"] = 0  # a replay is faster than its nodes were, and a write has rows of many hours
    if not settings.replay.speed:  # the end is not waited for longer than the rest took
        limits["flush_seconds"] = min(settings.history.flush_seconds, 1.0)
    directory = settings.history.dir if "history_dir" in given else None
    if directory is not None and ((directory / view.FILE).exists() or layout.committed(directory)):
        raise InUse(f"{directory} holds a history; name another folder with --history-dir, or leave that out")
    history = settings.history.model_copy(update=limits | {"dir": directory})
    folder = settings.data.dir / PREFIX / datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    data = settings.data.model_copy(update={"dir": folder})
    prefix = settings.prefix if "prefix" in given else _prefix(settings.prefix)
    return settings.model_copy(update={"history": history, "data": data, "prefix": prefix})


def _prefix(configured: str) -> str:
    """Return the prefix of a replay beside a pipeline.

    >>> _prefix("spazio"), _prefix("west")
    ('replay', 'west-replay')
    """
    ending = f"-{PREFIX}"
    return PREFIX if configured == Settings().prefix else configured[: _LONGEST_PREFIX - len(ending)] + ending


def few_partitions(settings: Settings, opened: Recording) -> Settings:
    """Return settings with the recorded partitions, or with one for each processor if few nodes have no global model.

    A fold takes about as long for one node as for hundreds, and while the model is made, each recorded second waits for
    all partitions. Predictions share what is learned of a workload within a partition, so those of a recording with its
    models are repeated only in the same partitions.
    """
    nats = settings.nats
    if "partitions" in nats.model_fields_set:
        return settings
    wanted = nats.partitions
    if "model" in opened.kinds:
        wanted = opened.partitions(wanted) or wanted
    elif len(opened.nodes()) <= _NODES_AT_ONCE:
        wanted = min(wanted, settings.process.replicas)
    return settings.model_copy(update={"nats": nats.model_copy(update={"partitions": wanted})})
