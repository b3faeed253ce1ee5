"""Recordings for tests of the replay, and what it reads of them."""

from pathlib import Path

from producers.recorded import recording
from producers.recorded.recording import Recorded
from schemas import codec
from schemas.messages.telemetry import SampleBlock
from schemas.sections.generator import Replay
from sinks.history import view
from sinks.history.writer import Writer
from tests.support.history import append

SIZES = {"cpus": 4, "memory_bytes": 8 << 30}


def read(*paths: Path, folder: Path, shift_us: int = 0, **settings: object) -> list[Recorded]:
    with recording.opened(paths, Replay.model_validate(SIZES | settings), folder / "work") as opened:
        return list(opened.messages(shift_us))


def blocks(messages: list[Recorded]) -> list[SampleBlock]:
    return [codec.decode(SampleBlock, message.payload) for message in messages if message.kind == "samples"]


def history(folder: Path, messages: list[tuple[str, bytes]]) -> Path:
    """Write messages as the history sink does, in two flushes."""
    writer = Writer(folder, "T", "20260101T000000000000Z", 1)
    for sequence, (subject, payload) in enumerate(messages, 1):
        append(writer, subject, sequence, payload)
        if sequence == len(messages) // 2:
            writer.flush()
    writer.flush()
    view.create(folder)
    return folder
