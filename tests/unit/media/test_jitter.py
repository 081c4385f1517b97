from collections.abc import Iterator

import numpy as np
import pytest
from aiortc.codecs.opus import OpusDecoder, OpusEncoder
from aiortc.jitterbuffer import JitterFrame
from aiortc.rtp import RtpPacket
from av.audio.frame import AudioFrame
from hypothesis import given, settings
from hypothesis import strategies as st

from media.frames import Pcm16
from media.jitter import EncodedFrame, GapFiller, PassThroughAudioBuffer, ReorderBuffer, signed_distance

RATE, FRAME = 48000, 960


def frame(number: int) -> EncodedFrame:
    return EncodedFrame(str(number).encode(), number * FRAME % (1 << 32))


def feed(order: ReorderBuffer, numbers: list[int], first: int = 0) -> list[list[int]]:
    """What comes out, as packet numbers, at each packet that goes in; number n has sequence first + n."""
    return [[int(f.data) for f in order.add((first + n) % 65536, frame(n))] for n in numbers]


def packet(number: int, data: bytes | None = None, ssrc: int = 7) -> RtpPacket:
    made = RtpPacket(payload_type=111, sequence_number=number % 65536, timestamp=number * FRAME % (1 << 32), ssrc=ssrc)
    made._data = str(number).encode() if data is None else data  # type: ignore[attr-defined]
    return made


@st.composite
def arrivals(draw: st.DrawFn, lossy: bool) -> list[int]:
    """Packet numbers in an order in which none is more than two places late, some of them lost."""
    keys = [(n + draw(st.sampled_from([0.0, 0.0, 0.0, 1.5, 2.5])), n) for n in range(draw(st.integers(0, 40)))]
    return [n for _, n in sorted(keys) if not lossy or n == 0 or draw(st.integers(0, 9))]


@given(arrivals(lossy=False), st.sampled_from([0, 65530, 40000]))
@settings(deadline=None)
def test_reordering_by_two_is_restored_across_the_wrap(numbers: list[int], first: int) -> None:
    order = ReorderBuffer()
    if numbers and numbers[0] != 0:
        numbers.insert(0, numbers.pop(numbers.index(0)))  # the first packet sets where the stream begins
    out = [n for step in feed(order, numbers, first) for n in step] + [int(f.data) for f in order.flush()]
    assert out == sorted(numbers)
    assert order.counts.lost == order.counts.late == 0


@given(arrivals(lossy=True), st.sampled_from([0, 65530]))
@settings(deadline=None)
def test_loss_and_reordering_lose_nothing_else_and_hold_two_at_most(numbers: list[int], first: int) -> None:
    order = ReorderBuffer()
    if numbers:
        numbers.sort(key=lambda n: n != 0)  # the first packet sets where the stream begins
    out: list[int] = []
    for step, n in enumerate(numbers):
        out += [int(f.data) for f in order.add((first + n) % 65536, frame(n))]
        assert order.held <= 2
        seen = numbers[: step + 1]
        assert all(m >= max(seen) - 1 for m in seen if m > max(out))  # only the newest two numbers ever wait
    out += [int(f.data) for f in order.flush()]
    assert out == sorted(out)
    assert len(out) + order.counts.late == len(numbers)
    if out:
        assert order.counts.lost == out[-1] + 1 - len(out)


def test_latency_after_one_loss_is_the_latency_before() -> None:
    steps = feed(ReorderBuffer(), [0, 1, 2, 4, 5, 6, 7, 8])
    assert steps == [[0], [1], [2], [], [], [4, 5, 6], [7], [8]]


def test_late_and_duplicate_packets_are_dropped_and_told_apart() -> None:
    order = ReorderBuffer()
    steps = feed(order, [0, 1, 1, 3, 3, 4, 5, 2, 0, 6])
    assert steps == [[0], [1], [], [], [], [], [3, 4, 5], [], [], [6]]
    counts = order.counts
    assert (counts.lost, counts.late, counts.duplicate) == (1, 1, 3)


def test_a_long_outage_costs_no_waiting_beyond_two_packets() -> None:
    order = ReorderBuffer()
    assert feed(order, [0, 500, 501, 502]) == [[0], [], [], [500, 501, 502]]
    assert order.counts.lost == 499


@pytest.mark.parametrize("jump", [-30000, 20000])
def test_a_sender_that_numbers_anew_is_followed_at_once(jump: int) -> None:
    order = ReorderBuffer()
    feed(order, [0, 1, 2])
    assert [f.data for f in order.add((2 + jump) % 65536, frame(9))] == [b"9"]
    assert order.counts.lost == order.counts.late == 0


def test_another_source_starts_anew() -> None:
    order = ReorderBuffer()
    order.add(100, frame(0), source=1)
    order.add(102, frame(2), source=1)
    assert [int(f.data) for f in order.add(90, frame(50), source=2)] == [2, 50]


@given(arrivals(lossy=True))
@settings(deadline=None)
def test_pass_through_has_the_interface_of_aiortcs_buffer(numbers: list[int]) -> None:
    handed: list[int] = []
    standing_in = PassThroughAudioBuffer(lambda f: handed.append(int(f.data)))
    for n in numbers:
        pli, ready = standing_in.add(packet(n))
        assert pli is False
        if ready is not None:
            assert (ready.timestamp, ready.payload_type) == (int(ready.data) * FRAME, 111)
            handed.append(int(ready.data))
    assert handed == sorted(handed)
    assert len(handed) >= len(numbers) - 2 - standing_in.counts.late


def test_without_extra_nothing_waits() -> None:
    standing_in = PassThroughAudioBuffer()
    ready = [standing_in.add(packet(n))[1] for n in (0, 2, 1, 3)]
    assert [None if one is None else int(one.data) for one in ready] == [0, 2, None, 3]
    assert (standing_in.counts.lost, standing_in.counts.late) == (1, 1)


def test_packets_without_payload_are_no_sound() -> None:
    standing_in = PassThroughAudioBuffer()
    assert standing_in.add(packet(0))[1] is not None
    assert standing_in.add(packet(1, b"")) == (False, None)
    assert standing_in.add(packet(2))[1] is not None
    assert standing_in.counts.lost == 0


def tone(samples: int) -> Pcm16:
    return (9000 * np.sin(2 * np.pi * 500 * np.arange(samples) / RATE)).astype(np.int16)


def opus_packets(pcm: Pcm16) -> Iterator[RtpPacket]:
    encoder = OpusEncoder()
    for n in range(pcm.size // FRAME):
        sound = AudioFrame.from_ndarray(pcm[None, n * FRAME : (n + 1) * FRAME], format="s16", layout="mono")
        sound.sample_rate, sound.pts = RATE, n * FRAME
        payloads, _ = encoder.encode(sound)
        for payload in payloads:
            yield packet(n, payload)


def test_opus_with_a_loss_and_a_swap_comes_out_whole_and_in_time() -> None:
    """Real packets through aiortc's decoder: the time line stays, only the lost 20 ms are made up."""
    pcm = tone(RATE)
    packets = list(opus_packets(pcm))
    packets[10], packets[11] = packets[11], packets[10]
    del packets[30]
    decoder = OpusDecoder()
    filler = GapFiller(RATE)
    out: list[Pcm16] = []

    def play(ready: EncodedFrame) -> None:
        for decoded in decoder.decode(JitterFrame(ready.data, ready.timestamp)):
            assert isinstance(decoded, AudioFrame)
            assert decoded.pts is not None
            left = decoded.to_ndarray().reshape(-1, 2)[:, 0].astype(np.int16)
            out.append(filler.feed(decoded.pts, left).pcm)

    standing_in = PassThroughAudioBuffer(play)
    for arrived in packets:
        _, ready = standing_in.add(arrived)
        if ready is not None:
            play(ready)
    heard = np.concatenate(out)
    assert heard.size == 50 * FRAME
    assert filler.filled == FRAME
    lag = int(np.argmax(np.correlate(heard[10000:12000].astype(float), pcm[10000:11900].astype(float), "valid")))
    good = np.r_[2000 : 30 * FRAME, 33 * FRAME : 49 * FRAME]
    sent, got = pcm[good].astype(float), heard[good + lag].astype(float)
    error = got - sent * (got @ sent) / (sent @ sent)  # two channels carry the one at another level
    assert 10 * np.log10((got @ got) / (error @ error)) > 15


@given(
    st.lists(st.tuples(st.integers(0, 9600), st.integers(1, 960)), max_size=20),
    st.sampled_from([0, 2**32 - 5000]),
)
@settings(deadline=None)
def test_filled_sound_has_no_holes(pieces: list[tuple[int, int]], first: int) -> None:
    filler = GapFiller(RATE)
    pts = first
    out = []
    for number, (gap, size) in enumerate(pieces):
        pts += gap if number else 0
        result = filler.feed(pts % (1 << 32), np.full(size, 1000, dtype=np.int16))
        assert result.filled == (gap if number else 0)
        assert result.pcm[result.filled :].tolist() == [1000] * size
        assert np.abs(result.pcm[: result.filled]).max(initial=0) <= 1000
        assert not result.pcm[960 : result.filled].any()  # after 20 ms: zeros
        out.append(result.pcm)
        pts += size
    assert sum(map(len, out)) == pts - first
    assert filler.muted == filler.late == 0


def test_the_fill_joins_without_a_jump_and_fades() -> None:
    filler = GapFiller(RATE)
    pcm = tone(FRAME + 37)
    filler.feed(0, pcm)
    result = filler.feed(pcm.size + 2 * FRAME, tone(FRAME))
    joined = np.concatenate((pcm, result.pcm[: result.filled])).astype(int)
    assert np.abs(np.diff(joined)).max() <= np.abs(np.diff(pcm.astype(int))).max() + 20
    levels = [np.abs(result.pcm[i : i + 240]).max() for i in range(0, FRAME, 240)]
    assert levels == sorted(levels, reverse=True)
    assert not result.pcm[FRAME : 2 * FRAME].any()


def test_a_long_gap_is_a_mute() -> None:
    filler = GapFiller(RATE)
    filler.feed(0, tone(FRAME))
    result = filler.feed(FRAME + 9601, tone(FRAME))
    assert (result.filled, result.muted, result.pcm.size) == (0, 9601, FRAME)
    assert filler.feed(FRAME + 9601 + FRAME, tone(FRAME)).muted == 0


def test_what_overlaps_is_cut_and_what_is_past_is_dropped() -> None:
    filler = GapFiller(RATE)
    filler.feed(0, np.arange(100, dtype=np.int16))
    assert filler.feed(90, np.arange(90, 120, dtype=np.int16)).pcm.tolist() == list(range(100, 120))
    assert filler.feed(0, np.arange(50, dtype=np.int16)).pcm.size == 0
    assert filler.late == 60
    assert filler.feed(120, np.ones(5, dtype=np.int16)).pcm.size == 5


def test_a_clock_that_starts_again_is_followed() -> None:
    filler = GapFiller(RATE)
    filler.feed(10 * RATE, tone(FRAME))
    result = filler.feed(0, tone(FRAME))
    assert (result.pcm.size, result.filled, result.muted) == (FRAME, 0, 0)
    assert filler.feed(FRAME, tone(FRAME)).pcm.size == FRAME


@given(st.integers(-(2**15), 2**15 - 1), st.integers(0, 65535))
@settings(deadline=None)
def test_distance_wraps(distance: int, reference: int) -> None:
    assert signed_distance((reference + distance) % 65536, reference, 16) == distance
