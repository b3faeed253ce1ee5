"""The newest dead letters, and how many there are."""

import codecs
from itertools import islice
from typing import Any

from bus import errors
from bus.api import request
from bus.client import Client

_LETTERS = 30
_TEXT_BYTES = 400
_HEX_BYTES = 64


async def read(client: Client, stream: str, timeout_seconds: float, most: int = _LETTERS) -> dict[str, Any]:
    """Return their number, for how many seconds they are kept (0: without end), and the newest, newest first.

    Args:
        client: Connection.
        stream: Name of their stream.
        timeout_seconds: Time limit of a request.
        most: Letters to return.

    Raises:
        NotFound: There is no such stream.
        BusError: It may not be read; also TimeoutError.
    """
    info = await request(client, f"STREAM.INFO.{stream}", {"deleted_details": True}, timeout_seconds)
    state, js = info["state"], client.jetstream(timeout=timeout_seconds)
    deleted = frozenset(state.get("deleted") or ())
    present = (each for each in range(state["last_seq"], state["first_seq"] - 1, -1) if each not in deleted)
    letters: list[dict[str, Any]] = []
    for sequence in islice(present, 2 * most):
        if len(letters) == most:
            break
        try:
            letter = await js.get_msg(stream, sequence, direct=True)
        except errors.NotFound:
            continue  # it was deleted or has expired meanwhile
        headers, data = letter.headers or {}, letter.data or b""
        letters.append(
            {
                "sequence": sequence,
                "at": None if letter.time is None else round(letter.time.timestamp() * 1e6),
                "subject": headers.get("Spazio-Subject", letter.subject),
                "reason": headers.get("Spazio-Error", ""),
                "bytes": len(data),
                "begin": beginning(data),
            }
        )
    return {"count": state["messages"], "seconds": info["config"]["max_age"] / 1e9, "newest": letters}


def beginning(data: bytes) -> dict[str, Any]:
    r"""Return the first bytes, as text if all can be printed, else as hexadecimal numbers; and whether more follow.

    >>> beginning(b'{"node": 3}')
    {'text': '{"node": 3}', 'hex': False, 'more': False}
    >>> beginning(b"\x00\xff" * 40)["text"][:11]
    '00 ff 00 ff'
    """
    try:
        # A character that the bound cuts is left out.
        text = codecs.getincrementaldecoder("utf-8")().decode(data[:_TEXT_BYTES], final=len(data) <= _TEXT_BYTES)
    except UnicodeDecodeError:
        text = "\0"
    if all(each.isprintable() or each in "\t\r\n" for each in text):
        return {"text": text, "hex": False, "more": len(data) > _TEXT_BYTES}
    return {"text": data[:_HEX_BYTES].hex(" "), "hex": True, "more": len(data) > _HEX_BYTES}
