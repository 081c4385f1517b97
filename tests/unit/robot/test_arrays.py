from __future__ import annotations

from contextlib import suppress

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from mstar.errors import Rejected
from mstar.tensors import Value
from server.robot.arrays import DEEPEST, MOST_VALUES, pack, unpack

DTYPES = st.sampled_from(["|b1", "|u1", "|i1", "<i4", ">i4", "<i8", "<f2", "<f4", "<f8", "<u2"])
ARRAYS = arrays.arrays(DTYPES, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))


@given(ARRAYS)
def test_arrays_come_back_as_they_were(array: np.ndarray) -> None:
    found = unpack(pack({"a": array, "b": [array]}))
    assert isinstance(found, dict)
    for back in (found["a"], found["b"][0]):
        assert (back.dtype, back.shape) == (array.dtype, array.shape)
        assert back.tobytes() == array.tobytes()


def test_the_layout_is_that_of_the_clients() -> None:
    tree = msgspec.msgpack.decode(pack({"a": np.arange(3, dtype="<i2"), "n": np.float32(0.5)}))
    assert tree == {
        "a": {b"__ndarray__": True, b"data": b"\0\0\1\0\2\0", b"dtype": "<i2", b"shape": [3]},
        "n": {b"__npgeneric__": True, b"data": 0.5, b"dtype": "<f4"},
    }


def test_keys_may_be_text() -> None:
    found = unpack(pack({"a": {"__ndarray__": True, "data": b"\1\2", "dtype": "|u1", "shape": [2]}}))
    assert isinstance(found, dict)
    assert found["a"].tolist() == [1, 2]


@given(st.binary(max_size=40))
def test_bytes_of_any_kind_are_a_value_or_rejected(body: bytes) -> None:
    with suppress(Rejected):
        pack(unpack(body))


@pytest.mark.parametrize(
    ("array", "text"),
    [
        ({b"data": b"", b"dtype": "O", b"shape": [0]}, "a/b: dtype 'O'"),
        ({b"data": b"", b"dtype": "V8", b"shape": [0]}, "a/b: dtype 'V8'"),
        ({b"data": b"", b"dtype": "<f4,<f4", b"shape": [0]}, "a/b: dtype"),
        ({b"data": b"123", b"dtype": "<f4", b"shape": [1]}, "a/b: 3 bytes are no float32"),
        ({b"data": b"", b"dtype": "<f4", b"shape": [-1, 0]}, "a/b: an array has data and shape"),
        ({b"data": b"", b"dtype": "<f4", b"shape": [10**12, 10**12]}, "which has"),
        ({b"data": "text", b"dtype": "<f4", b"shape": [1]}, "a/b: an array has data and shape"),
        ({b"dtype": "<f4"}, "a/b: an array has data and shape"),
    ],
)
def test_arrays_that_are_none_are_named(array: dict[bytes, Value], text: str) -> None:
    body = msgspec.msgpack.encode({"a": {"b": {b"__ndarray__": True, **array}}})
    with pytest.raises(Rejected, match=text):
        unpack(body)


def test_what_is_too_deep_is_rejected() -> None:
    tree: Value = 1
    for _ in range(DEEPEST + 2):
        tree = [tree]
    with pytest.raises(Rejected, match="inside one another"):
        unpack(pack(tree))
    with pytest.raises(Rejected):
        unpack(b"\x91" * 5000 + b"\x01")


@pytest.mark.parametrize(
    "body",
    [
        b"\xdd" + (10**6).to_bytes(4, "big") + b"\x80" * 10**6,
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\x80\x00\x00\x00",
        b"\x92" * (MOST_VALUES + 1),
    ],
)
def test_frames_of_too_many_values_are_not_decoded(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(_: bytes) -> Value:
        raise AssertionError

    monkeypatch.setattr("server.robot.arrays.msgspec.msgpack.decode", never)
    with pytest.raises(Rejected, match="values"):
        unpack(body)


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=40)
    | st.binary(max_size=300),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=5), inner, max_size=20),
    max_leaves=60,
)


@given(PLAIN)
def test_values_are_counted_as_they_are(value: Value) -> None:
    def count(value: Value) -> int:
        match value:
            case dict():
                return 1 + len(value) + sum(map(count, value.values()))
            case list():
                return 1 + sum(map(count, value))
            case _:
                return 1

    body, values = pack(value), count(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("server.robot.arrays.MOST_VALUES", values)
        assert unpack(body) == value
        patch.setattr("server.robot.arrays.MOST_VALUES", values - 1)
        with pytest.raises(Rejected, match="values"):
            unpack(body)


def test_objects_are_not_written() -> None:
    with pytest.raises(TypeError, match="object"):
        pack({"a": np.array([object()])})
    with pytest.raises(TypeError, match="object"):
        pack({"a": object()})  # type: ignore[dict-item]
