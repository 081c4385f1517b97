from __future__ import annotations

import io

import av
import numpy as np
import pytest

from media.pictures import MOST_SCANS, jpeg_rgb, jpeg_size
from mstar.errors import Rejected
from server.robot.events import EVENT_BYTES, Ask, decode
from server.robot.frames import HEADER, Encoding, Frame, Kind, Shot, pack_frame, read_frame


def jpeg(picture: np.ndarray) -> bytes:
    """As a camera would send it."""
    height, width, _ = picture.shape
    out = io.BytesIO()
    with av.open(out, "w", "mjpeg") as sink:
        stream = sink.add_stream("mjpeg", rate=1)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuvj444p"
        stream.options = {"q": "1"}
        for packet in [*stream.encode(av.VideoFrame.from_ndarray(picture, "rgb24")), *stream.encode(None)]:
            sink.mux(packet)
    return out.getvalue()


def smooth(height: int, width: int) -> np.ndarray:
    y, x = np.mgrid[:height, :width]
    return np.stack((255 * y / height, 255 * x / width, np.full_like(y, 90)), -1).astype(np.uint8)


def test_a_frame_comes_back_as_it_was() -> None:
    frame = Frame(Kind.CAMERA, "images/hôte", 7, 12.5, Shot(Encoding.RGB, 3, 2, bytes(range(18))))
    assert read_frame(pack_frame(frame)) == frame
    assert HEADER.size == 20
    picture = frame.shot.decoded("x")
    assert picture.shape == (2, 3, 3)
    assert picture[1, 0].tolist() == [9, 10, 11]


def test_a_jpeg_has_the_colours_of_the_camera() -> None:
    picture = smooth(48, 64)
    body = jpeg(picture)
    assert jpeg_size(body) == (48, 64)
    shown = jpeg_rgb(body)
    assert shown.shape == (48, 64, 3)
    assert shown.dtype == np.uint8
    assert np.abs(shown.astype(int) - picture).mean() < 3


@pytest.mark.parametrize("cut", [0, 1, 2, 10, 100, 300])
def test_a_jpeg_that_is_cut_is_rejected_or_decoded_never_more(cut: int) -> None:
    body = jpeg(smooth(48, 64))[:cut]
    with pytest.raises(Rejected, match="nose: "):
        Shot(Encoding.JPEG, 0, 0, body).decoded("nose")


def test_a_jpeg_that_claims_to_be_huge_is_not_decoded() -> None:
    body = bytearray(jpeg(smooth(48, 64)))
    at = body.index(b"\xff\xc0")
    body[at + 5 : at + 9] = b"\xff\xff\xff\xff"
    with pytest.raises(ValueError, match="65535 × 65535"):
        jpeg_rgb(bytes(body))


def test_a_second_frame_header_does_not_make_a_picture_larger() -> None:
    body = jpeg(smooth(48, 64))
    at = body.index(b"\xff\xc0")
    length = int.from_bytes(body[at + 2 : at + 4], "big") + 2
    lying = bytearray(body[at : at + length])
    lying[5:9] = (5000).to_bytes(2, "big") * 2
    padding = b"\xff\xfe\xff\xff" + bytes(65533)  # comments: a decoder believes large pictures of long files
    with pytest.raises(ValueError, match="can not be decoded"):
        jpeg_rgb(body[: at + length] + padding * 60 + lying + body[at + length :])


def scanned(scans: int) -> bytes:
    """A JPEG of 512 × 512 in so many scans (ITU-T T.81, G): each but the first says of every block that it is over."""

    def segment(marker: int, body: bytes) -> bytes:
        return bytes((0xFF, marker)) + (len(body) + 2).to_bytes(2, "big") + body

    blocks, one_code = 64 * 64, bytes((1, *[0] * 15))
    head = b"\xff\xd8" + segment(0xDB, bytes((0, *[1] * 64)))
    head += segment(0xC2, bytes((8, 2, 0, 2, 0, 1, 1, 0x11, 0)))
    head += segment(0xC4, b"\x00" + one_code + b"\x00") + segment(0xC4, b"\x10" + one_code + b"\xc0")
    first = segment(0xDA, bytes((1, 1, 0, 0, 0, 0))) + bytes(blocks // 8)
    other = segment(0xDA, bytes((1, 1, 0, 1, 63, 0))) + bytes(2)
    return head + first + other * (scans - 1) + b"\xff\xd9"


def test_a_jpeg_of_many_scans_is_not_decoded() -> None:
    assert jpeg_rgb(scanned(MOST_SCANS)).shape == (512, 512, 3)
    with pytest.raises(ValueError, match="scans"):
        jpeg_rgb(scanned(MOST_SCANS + 1))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "header of 20 bytes"),
        (HEADER.pack(9, 0, 0, 0, 1, 0.0, 0, 0), "version"),
        (HEADER.pack(1, 7, 0, 0, 1, 0.0, 0, 0), "kind 7"),
        (HEADER.pack(1, 0, 9, 0, 1, 0.0, 0, 0), "encoding 9"),
        (HEADER.pack(1, 0, 0, 0, 1, float("nan"), 0, 0), "t_capture"),
        (HEADER.pack(1, 0, 0, 0, 1, -1e300, 0, 0), "t_capture"),
        (HEADER.pack(1, 0, 0, 1, 1, 0.0, 0, 0) + b"\xff", "UTF-8"),
    ],
)
def test_what_is_no_frame_is_named(data: bytes, text: str) -> None:
    with pytest.raises(Rejected, match=text):
        read_frame(data)


def test_raw_pictures_have_their_size() -> None:
    with pytest.raises(Rejected, match="nose: 5 bytes are no raw picture of 2 × 1"):
        Shot(Encoding.RGB, 2, 1, b"12345").decoded("nose")


@pytest.mark.parametrize("sign", ["a", "é", "€", "🙂"])
def test_events_are_bounded_in_bytes_however_they_come(sign: str) -> None:
    head, tail = '{"type": "ask", "id": "', '"}'
    fits = head + sign * ((EVENT_BYTES - len(head) - len(tail)) // len(sign.encode())) + tail
    for frame in (fits, fits.encode()):
        assert isinstance(decode(frame), Ask)
    beyond = head + sign + fits.removeprefix(head)
    for frame in (beyond, beyond.encode()):
        with pytest.raises(Rejected) as wrong:
            decode(frame)
        assert wrong.value.code == "event_too_long"


def test_events_are_checked() -> None:
    assert decode('{"type": "ask", "id": "a", "repeat": true}') == Ask("a", repeat=True)
    for text, code in (
        ('{"type": "ask", "idd": "a"}', "unknown_parameter"),
        ('{"type": "ask", "deadline_ms": 0}', "invalid_value"),
        ('{"type": "dance"}', "invalid_value"),
        ("{", "invalid_json"),
        ('{"type": "ask", "id": "\ud83d"}', "invalid_json"),
        ('{"type": "state", "t": 1e300, "values": []}', "invalid_value"),
        ('{"type": "clock.pong", "id": 1, "t": -1e13}', "invalid_value"),
        ('{"type": "session.update", "session": {"rate": 1e-300}}', "invalid_value"),
        ('{"type": "session.update", "session": {"wait_ms": 1e300}}', "invalid_value"),
        ('{"type": "ask", "settings": {"noise": [' + "0," * EVENT_BYTES + "0]}}", "event_too_long"),
    ):
        with pytest.raises(Rejected) as wrong:
            decode(text)
        assert wrong.value.code == code
