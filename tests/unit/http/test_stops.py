"""Texts that end an answer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from server.http.stops import Stops

PIECES = st.lists(st.text("ab\n", max_size=4), max_size=12)


@given(PIECES, st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=4))
def test_however_the_text_is_cut_it_ends_before_its_first_stop(pieces: list[str], stops: list[str]) -> None:
    scanner = Stops(stops)
    given_out = ""
    for piece in pieces:
        if scanner.hit:
            break
        given_out += scanner.feed(piece)
        seen = "".join(pieces)
        assert seen.startswith(given_out)
    text = "".join(pieces)
    ends = [end for stop in stops for end in range(len(text) + 1) if text[:end].endswith(stop)]
    if not ends:
        assert not scanner.hit
        assert given_out + scanner.flush() == text
        return
    first = min(ends)
    assert scanner.hit
    assert any(text[:first] == given_out + stop or text.startswith(given_out + stop) for stop in stops)
    assert not any(stop in given_out for stop in stops)
    assert scanner.feed("more") == scanner.flush() == ""


def test_what_may_be_a_stop_waits() -> None:
    scanner = Stops(["END"])
    assert scanner.feed("the EN") == "the "
    assert scanner.feed("ergy") == "ENergy"
    assert scanner.feed("E") == ""
    assert scanner.flush() == "E"
