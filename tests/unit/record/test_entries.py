"""Files of recordings: what is whole is read, and what is not gets one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mstar.errors import Rejected
from server.cli import main
from server.record.entries import Closed, Entry, Heard, Recording, Ticked, first_line, packed, read
from tests.unit.record.made import BEGAN, quiet, written

ENTRIES: list[Entry] = [BEGAN, Heard(100.5, 0, quiet(1)[:16].tobytes(), 7), Ticked(101.0, 0), Closed(102.0)]


def understood(path: Path) -> Recording | None:
    """What is in a file; None where it is refused, which takes one line."""
    try:
        return read(path)
    except Rejected as why:
        refusal = why
    assert refusal.message.startswith(f"{path}: ")
    assert "\n" not in refusal.message
    return None


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return written(tmp_path_factory.mktemp("record") / "whole", ENTRIES).read_bytes()


def test_what_was_written_is_read(tmp_path: Path) -> None:
    recording = read(written(tmp_path / "whole", ENTRIES))
    assert recording.began == BEGAN
    assert recording.steps == tuple(ENTRIES[1:3])
    assert recording.whole


def test_a_file_that_is_cut_off_anywhere_is_read_as_far_as_it_goes_or_refused(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "cut"
    steps = set()
    for length in range(len(raw)):
        path.write_bytes(raw[:length])
        recording = understood(path)
        if recording is not None:
            assert not recording.whole
            steps.add(len(recording.steps))
    assert steps == {0, 1, 2}


@given(at=st.integers(0, 10**6), value=st.integers(0, 255), more=st.binary(max_size=12))
def test_damage_is_told_or_does_no_harm(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes, at: int, value: int, more: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged"
    at %= len(raw)
    path.write_bytes(raw[:at] + bytes([value]) + raw[at + 1 :] + more)
    recording = understood(path)
    if recording is not None:  # the same byte, or an end that looks cut off
        assert recording.began.session == BEGAN.session
        assert list(recording.steps) == ENTRIES[1 : 1 + len(recording.steps)]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not a recording"),
        (b"RIFF....WAVE", "not a recording"),
        (b"mstar-record 2\n", "a recording of version '2', this program reads version 1"),
        (b"mstar-record 1\n", "cut off before the session began"),
        (first_line() + packed(Ticked(1.0, 0)), "cut off before the session began"),
        (first_line() + packed(BEGAN) + b"\x04\x00\x00\x00\x00\x00\x00\x00abcd", "damaged at byte"),
        (first_line() + packed(BEGAN), "cut off behind 0 steps; --partial runs those"),
        (None, "No such file or directory"),
    ],
)
def test_the_command_says_in_one_line_what_is_wrong(
    tmp_path: Path, content: bytes | None, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    assert main(["replay", str(path)]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("mstar: ")
    assert says in told.err
    assert str(path) in told.err
    assert told.err.count("\n") == 1
