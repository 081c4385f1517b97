"""What goes over the bus comes out as it went in."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mstar import messages
from mstar.bus.wire import Envelope, decode, encode
from mstar.carried import Crate, Group, Slice
from mstar.messages import Emission, Feed, Message, Piece, session_of
from mstar.streaming.chunk import Span

KINDS = get_args(Message)
VALUES: dict[Any, Any] = {str: "text", int: 7, float: 1.5, bool: True, Any: [1, "two", {"three": 3.5}, None, b"four"]}

STRUCTURES: dict[str, Any] = {
    "Piece": (Piece(Crate("numpy", "<f4", (1,), b"1234"), True, True, True), Piece(Group("tuple", (1, "x")))),
    "Mapping[str, tuple[int, str]]": {"x": (3, "tokens")},
    "Span": {"x": Span("s", 1, 2, 3, 4, True, True)},
}


def value_of(kind: Any) -> Any:
    """Something other than the default, for a field of this type."""
    if kind in VALUES:
        return VALUES[kind]
    shown = str(kind)
    for name, value in STRUCTURES.items():
        if name in shown:
            return value
    if "None" in shown:
        return 11
    if "Mapping[str, int]" in shown:
        return {"a": 1}
    if "Mapping[str, tuple" in shown:
        return {"mic": ("worker.a", "worker.b")}
    if "Mapping" in shown:
        return {"x": {"y": [1, 2]}, "part": Slice("mic", 3, 9)}
    if "tuple[tuple" in shown:
        return ((1.5, "worker", 3), ())
    if "tuple" in shown:
        return ("worker.a", "worker.b")
    raise AssertionError(f"no value for {shown}")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_message_with_every_field(kind: type[msgspec.Struct]) -> None:
    message = kind(**{field.name: value_of(field.type) for field in msgspec.structs.fields(kind)})
    sent = Envelope("worker.a", 12, message)  # type: ignore[arg-type]
    received = decode(encode(sent))
    assert type(received.body) is kind
    assert msgspec.to_builtins(received, enc_hook=repr) == msgspec.to_builtins(sent, enc_hook=repr)


def test_no_message_is_missing_from_the_union() -> None:
    defined = {
        each
        for each in vars(messages).values()
        if isinstance(each, type) and issubclass(each, msgspec.Struct) and each.__module__ == messages.__name__
    }
    assert defined - {Piece} == set(KINDS)


def through(value: Any) -> Any:
    body = decode(encode(Envelope("a", 1, Emission("s.1", "out", 0, value)))).body
    assert isinstance(body, Emission)
    return body.value


arrays = hnp.arrays(
    dtype=st.one_of(
        hnp.floating_dtypes(sizes=(16, 32, 64)),
        hnp.integer_dtypes(),
        hnp.unsigned_integer_dtypes(),
        hnp.boolean_dtypes(),
        hnp.complex_number_dtypes(sizes=(64, 128)),
    ),
    shape=hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
)


@given(arrays)
def test_arrays_keep_dtype_shape_and_every_bit(array: np.ndarray) -> None:
    received = through(array)
    assert received.dtype == array.dtype
    assert received.shape == array.shape
    assert received.tobytes() == array.tobytes()


def test_arrays_in_any_memory_order_and_inside_values() -> None:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4).transpose(2, 0, 1)[::2]
    received = through({"rows": [array, {"deep": array[:, :, 1]}], "part": Slice("mic", 3, 9)})
    assert np.array_equal(received["rows"][0], array)
    assert np.array_equal(received["rows"][1]["deep"], array[:, :, 1])
    assert received["part"] == Slice("mic", 3, 9)
    assert received["part"] != Slice("mic", 3, 10)


@given(st.text(max_size=8), st.integers(0, 2**53), st.integers(0, 2**53))
def test_slices(stream: str, start: int, stop: int) -> None:
    received = through(Slice(stream, start, stop))
    assert (received.stream, received.start, received.stop) == (stream, start, stop)


def test_numbers_of_numpy_become_numbers() -> None:
    assert through([np.float32(0.5), np.int64(-3), np.bool_(True)]) == [0.5, -3, True]


@pytest.mark.parametrize("value", [object(), 1 + 2j, {1, 2}.__iter__()])
def test_what_can_not_travel_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="can not travel"):
        encode(Envelope("a", 1, Feed("s", "", "mic", 0, value)))


@given(st.binary(max_size=60))
def test_what_is_no_envelope_is_refused(frame: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, msgspec.ValidationError)):
        decode(frame)


def test_a_request_is_named_after_its_session() -> None:
    assert session_of("server.s1.42") == "server.s1"
