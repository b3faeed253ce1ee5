"""How the dashboard shows the bytes of a dead letter."""

import pytest

from bus.accounting import dead_letters


@pytest.mark.parametrize(
    ("data", "text", "is_hex", "more"),
    [
        (b"", "", False, False),
        ('{\t"ä"}\n'.encode(), '{\t"ä"}\n', False, False),
        ("ä".encode() * 201, "ä" * 200, False, True),
        (b"x" + "ä".encode() * 200, "x" + "ä" * 199, False, True),
        (b"a\x00", "61 00", True, False),
        (b"\xc3", "c3", True, False),
        (b"\x1b[2J" * 20, ("1b 5b 32 4a " * 16).strip(), True, True),
    ],
)
def test_bytes_are_shown_as_text_where_all_can_be_read(data: bytes, text: str, *, is_hex: bool, more: bool) -> None:
    assert dead_letters.beginning(data) == {"text": text, "hex": is_hex, "more": more}
