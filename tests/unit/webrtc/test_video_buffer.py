from __future__ import annotations

from aiortc.jitterbuffer import JitterBuffer, JitterFrame
from aiortc.rtp import RtpPacket

from server.webrtc.video_buffer import PromptVideoBuffer


def packets(frames: int, each: int, first: int = 65_530) -> list[RtpPacket]:
    """Frames of `each` packets; numbers wrap on the way."""
    out = []
    for number in range(frames * each):
        frame, part = divmod(number, each)
        packet = RtpPacket(
            sequence_number=(first + number) % 2**16, timestamp=frame * 3000, marker=int(part == each - 1)
        )
        packet._data = b"%d.%d " % (frame, part)  # type: ignore[attr-defined]
        out.append(packet)
    return out


def taken(buffer: JitterBuffer, given: list[RtpPacket], extra: list[JitterFrame]) -> list[tuple[int, bytes]]:
    """(packets that had come, data) of every frame."""
    out = []
    for count, packet in enumerate(given, 1):
        _, frame = buffer.add(packet)
        out += [(count, each.data) for each in extra]
        extra.clear()
        if frame is not None:
            out.append((count, frame.data))
    return out


def prompt(given: list[RtpPacket]) -> list[tuple[int, bytes]]:
    extra: list[JitterFrame] = []
    return taken(PromptVideoBuffer(lambda frame, _: extra.append(frame)), given, extra)


def test_a_frame_is_handed_on_with_its_last_packet() -> None:
    assert prompt(packets(3, 2)) == [(2, b"0.0 0.1 "), (4, b"1.0 1.1 "), (6, b"2.0 2.1 ")]
    assert prompt(packets(3, 1)) == [(1, b"0.0 "), (2, b"1.0 "), (3, b"2.0 ")]


def test_the_stock_buffer_waits_for_the_next_frame() -> None:
    """What the class is for; if this fails, aiortc has changed and it may go."""
    assert taken(JitterBuffer(512, is_video=True), packets(3, 2), []) == [(3, b"0.0 0.1 "), (5, b"1.0 1.1 ")]


def test_a_packet_that_comes_late_frees_all_that_waited_in_order() -> None:
    given = packets(5, 1)
    order = [given[0], given[2], given[3], given[1], given[4]]
    assert prompt(order) == [(1, b"0.0 "), (4, b"1.0 "), (4, b"2.0 "), (4, b"3.0 "), (5, b"4.0 ")]


def test_frames_without_markers_are_handed_on_by_the_next_one() -> None:
    given = packets(3, 2)
    for packet in given:
        packet.marker = 0
    assert prompt(given) == [(3, b"0.0 0.1 "), (5, b"1.0 1.1 ")]
