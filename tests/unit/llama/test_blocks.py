from __future__ import annotations

import pytest
import torch

from models.blocks.linear import DenseLinear, Int4Linear, Int8Linear, RowLinear, stacked
from models.blocks.norm import RMSNorm
from models.blocks.quantise import Grouped4, Grouped8, Stored, dense, quantise4, rows
from models.llama.head import refined_head


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def grouped4(out: int, width: int) -> Grouped4:
    codes = torch.randint(0, 16, (out, width), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    scale = random(out, width // 32, seed=2).abs() * 0.1 + 0.01
    return Grouped4(codes, scale, random(out, width // 32, seed=3) * 0.1 - 8 * scale)


@pytest.mark.parametrize("out", [16, 17, 40])
@pytest.mark.parametrize("tokens", [1, 5])
def test_the_four_bit_product_is_that_of_its_values(out: int, tokens: int) -> None:
    weight, bias, x = grouped4(out, 96), random(out), random(tokens, 96, seed=4)
    got = Int4Linear(weight, bias)(x)
    assert got.shape == (tokens, out)
    wanted = x @ weight.dense().T + bias
    assert (got.float() - wanted).norm() <= 0.01 * wanted.norm()


def test_the_eight_bit_product_is_close_to_the_dense_one() -> None:
    weight, bias, x = random(48, 96), random(48, seed=1), random(3, 96, seed=2)
    wanted = DenseLinear(weight, bias)(x)
    assert (Int8Linear(weight, bias)(x).float() - wanted).norm() <= 0.01 * wanted.norm()
    torch.testing.assert_close(RowLinear(weight, bias)(x), wanted)


def test_quantising_what_four_bits_can_hold_changes_nothing_that_bfloat16_can_tell() -> None:
    exact = grouped4(32, 64)
    exact.codes[:, ::32], exact.codes[:, 1::32] = 0, 15  # every group uses its whole range
    found = quantise4(exact.dense())
    assert torch.equal(found.codes, exact.codes)
    torch.testing.assert_close(found.scale, exact.scale, rtol=2**-8, atol=0)
    torch.testing.assert_close(found.minimum + 8 * found.scale, exact.minimum + 8 * exact.scale, rtol=2**-8, atol=2e-3)


def test_the_searched_range_errs_less_than_the_full_range() -> None:
    weight = random(64, 256) ** 3  # long tails
    groups = weight.unflatten(1, (-1, 32))
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    step = (high - low) / 15
    plain = ((groups - low) / step).round() * step + low
    error = (quantise4(weight).dense() - weight).square().mean()
    assert error < 0.9 * (plain.flatten(1) - weight).square().mean()


def test_constant_groups_survive() -> None:
    for value in (0.0, 1.5, -3.0):
        weight = torch.full((16, 32), value)
        assert torch.equal(quantise4(weight).dense(), weight)


def test_side_by_side_is_concatenation_whatever_the_forms() -> None:
    parts: list[Stored] = [grouped4(16, 64), random(16, 64), random(8, 64, seed=9).half()]
    x = random(2, 64, seed=5)
    whole = stacked(parts, "float32")(x)
    torch.testing.assert_close(whole, torch.cat([x @ dense(p).T for p in parts], dim=1))
    assert (stacked(parts, "int4")(x).float() - whole).norm() <= 0.12 * whole.norm()


def test_rows_are_those_of_the_dense_matrix() -> None:
    index = torch.tensor([3, 0, 3])
    eight = Grouped8(torch.arange(-64, 64, dtype=torch.int8).view(4, 32), random(4, 1))
    for weight in (grouped4(16, 64), eight, random(8, 4).bfloat16()):
        assert torch.equal(rows(weight, index), dense(weight)[index])


@pytest.mark.parametrize("fused", [False, True])
def test_leading_logits_are_exact_and_the_rest_is_close(fused: bool) -> None:
    weight, hidden = random(200, 64), random(3, 64, seed=1)
    wanted, got = hidden @ weight.T, refined_head(weight, fused=fused)(hidden)
    top = wanted.topk(16, dim=-1).indices
    torch.testing.assert_close(got.gather(1, top), wanted.gather(1, top))
    assert torch.equal(got.argmax(-1), wanted.argmax(-1))
    torch.testing.assert_close(got, wanted, atol=0.3, rtol=0.02)


def test_the_norm_is_the_published_formula_also_where_eps_matters() -> None:
    weight = random(24)
    for scale in (1.0, 1e-4, 0.0):
        x = random(2, 3, 24, seed=7) * scale
        wanted = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight
        torch.testing.assert_close(RMSNorm(weight, 1e-6)(x), wanted)
