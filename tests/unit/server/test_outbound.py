"""Frames to a client: in order, bounded, and without the sound that nobody wants any more."""

from __future__ import annotations

from server.outbound import HIGH, LOW, MOST, Close, Frame, Outbound


def congested(outbound: Outbound) -> bool:
    return outbound.congested


async def test_order_and_dropped_sound() -> None:
    outbound = Outbound()
    frames: list[Frame | Close] = [
        Frame(b"a"),
        Frame(b"b", "resp_1"),
        Frame(b"c", "resp_2"),
        Frame(b"d", "resp_1"),
        Close(1000, ""),
    ]
    for frame in frames:
        outbound.push(frame)
    outbound.drop("resp_1")
    assert [await outbound.pop() for _ in range(3)] == [frames[0], frames[2], frames[4]]


async def test_congestion_has_two_marks() -> None:
    outbound = Outbound()
    frame = Frame(bytes(1024))
    pushed = 0
    while not congested(outbound):
        outbound.push(frame)
        pushed += 1
    assert pushed == HIGH // 1024 + 1
    await outbound.turned()
    while congested(outbound):
        outbound.written(frame)
        pushed -= 1
    assert pushed == LOW // 1024
    await outbound.turned()
    await outbound.eased()


async def test_what_is_being_written_still_counts() -> None:
    outbound = Outbound()
    outbound.push(Frame(bytes(HIGH + 1)))
    frame = await outbound.pop()
    assert congested(outbound)
    assert isinstance(frame, Frame)
    outbound.written(frame)
    assert not congested(outbound)
    assert outbound.waiting == 0


async def test_dropping_keeps_the_count_of_what_is_being_written() -> None:
    outbound = Outbound()
    for _ in range(3):
        outbound.push(Frame(bytes(1000), "resp_1"))
    frame = await outbound.pop()
    outbound.drop("resp_1")
    assert outbound.waiting == 1000
    assert isinstance(frame, Frame)
    outbound.written(frame)
    assert outbound.waiting == 0


async def test_too_much_overflows() -> None:
    outbound = Outbound()
    outbound.push(Frame(bytes(MOST)))
    assert not outbound.overflowing
    outbound.push(Frame(b"x"))
    assert outbound.overflowing
