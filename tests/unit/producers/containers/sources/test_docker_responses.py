"""HTTP as Docker speaks it, whatever pieces it comes in."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.containers.wire.response import Decoder, Lines
from tests.unit.producers.containers.sources.docker import CHUNKED, chunk


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=5), st.lists(st.integers(0, 300), max_size=12))
def test_a_chunked_response_cut_anywhere_is_the_same(bodies: list[bytes], cuts: list[int]) -> None:
    whole = CHUNKED + b"".join(map(chunk, bodies)) + b"0\r\n\r\n"
    places = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    decoder = Decoder()
    pieces = [decoder.feed(whole[a:b]) for a, b in itertools.pairwise(places)]
    assert b"".join(pieces) == b"".join(bodies)
    assert (decoder.status, decoder.ended) == (200, True)


@pytest.mark.parametrize("portion", [1, 7, 1000])
def test_a_response_of_known_length_ends_with_it_and_one_without_with_the_connection(portion: int) -> None:
    for head, sure in ((b"Content-Length: 5\r\n", True), (b"", False)):
        whole = b"HTTP/1.0 404 Not Found\r\n" + head + b"\r\nhello"
        decoder = Decoder()
        body = b"".join(decoder.feed(whole[at : at + portion]) for at in range(0, len(whole), portion))
        assert (decoder.status, body, decoder.ended) == (404, b"hello", sure)
        decoder.close()
        assert decoder.ended


@pytest.mark.parametrize(
    "response", [b"SSH-2.0-OpenSSH\r\n", b"HTTP/2 200\r\n\r\n", b"x" * 9, b"HTTP/1.1" + 70_000 * b"x"]
)
def test_what_is_no_http_is_refused(response: bytes) -> None:
    with pytest.raises(ValueError, match="no HTTP"):
        Decoder().feed(response)


def test_a_chunk_without_a_size_is_refused_and_one_that_is_cut_off_is_a_lost_connection() -> None:
    with pytest.raises(ValueError, match="size"):
        Decoder().feed(CHUNKED + b"no size\r\n")
    with pytest.raises(ValueError, match="does not end"):
        Decoder().feed(CHUNKED + b"1" * 70_000)
    decoder = Decoder()
    decoder.feed(CHUNKED + b"5\r\nab")
    with pytest.raises(ConnectionError):
        decoder.close()


@given(st.lists(st.text("ab\r", max_size=12), max_size=6), st.integers(1, 9))
def test_lines_in_portions_are_lines_and_too_long_ones_are_left_out(lines: list[str], portion: int) -> None:
    whole = "".join(f"{line}\n" for line in lines).encode()
    splitter = Lines(6)
    result = [line for at in range(0, len(whole), portion) for line in splitter.feed(whole[at : at + portion])]
    assert result == [None if len(line) > 6 else line.encode() for line in lines if len(line) > 6 or line.strip()]
