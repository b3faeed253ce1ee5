"""The only code that knows NATS: connect, publish, consume, buckets, checkpoints, the embedded server."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import cast


@contextmanager
def _without(name: str) -> Iterator[None]:
    """Let imports of a package fail in this block, unless it is there already."""
    modules = cast("dict[str, ModuleType | None]", sys.modules)
    hidden = name not in modules
    modules.setdefault(name, None)
    try:
        yield
    finally:
        if hidden:
            del modules[name]


# The client imports aiohttp for WebSockets, which nothing here uses.
with _without("aiohttp"):
    import nats.aio.client  # noqa: F401 # so that no later import does
