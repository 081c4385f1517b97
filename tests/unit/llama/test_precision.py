"""Which type a family's networks compute in."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from models.blocks.linear import DenseLinear
from models.blocks.precision import precision
from mstar.errors import WeightsError


@pytest.mark.parametrize(
    ("settings", "dtype"),
    [
        ({}, torch.float32),
        ({"device": "cpu"}, torch.float32),
        ({"device": "cuda:1"}, torch.bfloat16),
        ({"device": "cuda", "dtype": "float32"}, torch.float32),
        ({"dtype": "bfloat16"}, torch.bfloat16),
    ],
)
def test_it_goes_by_the_device_unless_it_is_given(settings: Any, dtype: torch.dtype) -> None:
    assert precision(settings) == dtype


@pytest.mark.parametrize("dtype", ["int8", "float16", 16, True])
def test_others_are_refused(dtype: Any) -> None:
    with pytest.raises(WeightsError, match=rf"dtype {dtype!r} is not supported \(float32, bfloat16\)"):
        precision({"dtype": dtype})


def test_a_matrix_in_the_type_it_is_stored_in_is_not_copied() -> None:
    """An embedding that is the head, too, is there once."""
    weight = torch.randn(8, 4).bfloat16()
    assert DenseLinear(weight, dtype=torch.bfloat16)._weight.data_ptr() == weight.data_ptr()
    x = torch.randn(3, 4)
    assert DenseLinear(weight, dtype=torch.bfloat16)(x).dtype == torch.bfloat16
    torch.testing.assert_close(DenseLinear(weight)(x), x @ weight.float().T)
