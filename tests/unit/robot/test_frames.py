from __future__ import annotations

import io

import av
import numpy as np
import pytest

from media.pictures import jpeg_rgb, jpeg_size
from mstar.errors import Rejected
from server.robot.events import Ask, decode
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


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "header of 20 bytes"),
        (HEADER.pack(9, 0, 0, 0, 1, 0.0, 0, 0), "version"),
        (HEADER.pack(1, 7, 0, 0, 1, 0.0, 0, 0), "kind 7"),
        (HEADER.pack(1, 0, 9, 0, 1, 0.0, 0, 0), "encoding 9"),
        (HEADER.pack(1, 0, 0, 0, 1, float("nan"), 0, 0), "t_capture"),
        (HEADER.pack(1, 0, 0, 1, 1, 0.0, 0, 0) + b"\xff", "UTF-8"),
    ],
)
def test_what_is_no_frame_is_named(data: bytes, text: str) -> None:
    with pytest.raises(Rejected, match=text):
        read_frame(data)


def test_raw_pictures_have_their_size() -> None:
    with pytest.raises(Rejected, match="nose: 5 bytes are no raw picture of 2 × 1"):
        Shot(Encoding.RGB, 2, 1, b"12345").decoded("nose")


def test_events_are_checked() -> None:
    assert decode('{"type": "ask", "id": "a", "repeat": true}') == Ask("a", repeat=True)
    for text, code in (
        ('{"type": "ask", "idd": "a"}', "unknown_parameter"),
        ('{"type": "ask", "deadline_ms": 0}', "invalid_value"),
        ('{"type": "dance"}', "invalid_value"),
        ("{", "invalid_json"),
    ):
        with pytest.raises(Rejected) as wrong:
            decode(text)
        assert wrong.value.code == code
