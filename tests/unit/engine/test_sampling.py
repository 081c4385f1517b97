import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mstar.engine.sampling import Draw, RowSampler, resolve_sampling, uniform
from mstar.errors import Rejected
from mstar.submodule import Sampling
from mstar.tensors import Value
from tests.pretend import pretending

LOGITS = torch.log(torch.tensor([0.1, 0.4, 0.2, 0.3]))


def frequencies(sampling: Sampling, logits: Tensor = LOGITS, n: int = 4000) -> Tensor:
    ids = RowSampler([Draw(sampling, seed=1, position=i) for i in range(n)])(logits.expand(n, -1))
    return torch.bincount(ids, minlength=logits.shape[0]) / n


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(), [0, 1, 0, 0]),
        (Sampling(temperature=1.0), [0.1, 0.4, 0.2, 0.3]),
        (Sampling(temperature=0.5), [0.01 / 0.3, 0.16 / 0.3, 0.04 / 0.3, 0.09 / 0.3]),
        (Sampling(temperature=1.0, top_k=2), [0, 4 / 7, 0, 3 / 7]),
        (Sampling(temperature=1.0, top_p=0.65), [0, 4 / 7, 0, 3 / 7]),
        (Sampling(temperature=1.0, top_p=0.75), [0, 4 / 9, 2 / 9, 3 / 9]),
        (Sampling(temperature=1.0, top_k=3, top_p=0.4), [0, 1, 0, 0]),
        (Sampling(temperature=1.0, top_p=1e-9), [0, 1, 0, 0]),
    ],
)
def test_tokens_come_as_often_as_the_distribution_says(sampling: Sampling, expected: list[float]) -> None:
    torch.testing.assert_close(frequencies(sampling), torch.tensor(expected, dtype=torch.float32), atol=0.03, rtol=0)


def test_top_p_over_a_flat_distribution_looks_beyond_the_first_tokens() -> None:
    counts = frequencies(Sampling(temperature=1.0, top_p=0.9), torch.zeros(2000), 3000)
    assert int((counts > 0).sum()) > 1000


def test_a_row_is_drawn_the_same_wherever_it_stands() -> None:
    logits = torch.randn(5, 300, generator=torch.Generator().manual_seed(0))
    draws = [Draw(Sampling(temperature=0.9, top_p=0.9), seed=i, position=7 + i) for i in range(5)]
    together = RowSampler(draws)(logits).tolist()
    assert together == [int(RowSampler([draw])(row[None])) for draw, row in zip(draws, logits, strict=True)]
    assert RowSampler(draws[::-1])(logits.flip(0)).tolist() == together[::-1]


def test_every_use_in_a_step_draws_anew_and_repeats_with_the_seed() -> None:
    flat = torch.zeros(1, 1000)
    draw = Draw(Sampling(temperature=1.0), seed=3, position=4)
    one, other = RowSampler([draw]), RowSampler([draw])
    drawn = [int(one(flat)) for _ in range(5)]
    assert len(set(drawn)) > 1
    assert drawn == [int(other(flat)) for _ in range(5)]


def test_repetition_penalty_lowers_generated_tokens_only() -> None:
    logits = torch.tensor([[2.0, -1.0, 1.5, -0.5]])
    draw = Draw(Sampling(repetition_penalty=2.0), generated=np.array([0, 0, 1, -1, 99]))
    assert int(RowSampler([draw])(logits)) == 2
    assert int(RowSampler([Draw(Sampling(repetition_penalty=2.0))])(logits)) == 0
    assert logits.tolist() == [[2.0, -1.0, 1.5, -0.5]]


def test_uniform_is_spread_and_depends_on_every_word() -> None:
    draws = np.array([uniform(seed, position) for seed in range(60) for position in range(60)])
    assert len(set(draws)) == 3600
    assert np.abs(np.histogram(draws, bins=10, range=(0, 1))[0] - 360).max() < 80
    assert uniform(1, 2) != uniform(2, 1)


def test_rows_and_calls_must_agree() -> None:
    with pytest.raises(ValueError, match="2 rows of logits for 1 calls"):
        RowSampler([Draw(Sampling())])(torch.zeros(2, 4))


def test_settings_override_the_defaults() -> None:
    defaults = Sampling(temperature=0.6, top_k=40)
    settings: dict[str, Value] = {"temperature": 0, "top_p": 0.5, "voice": "x", "top_k": None}
    assert resolve_sampling(defaults, settings) == Sampling(0.0, 40, 0.5, 1.0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1),
        ("temperature", "hot"),
        ("top_k", 1.5),
        ("top_p", 0),
        ("top_p", float("nan")),
        ("top_k", True),
    ],
)
def test_wrong_settings_are_rejected_by_name(field: str, value: float) -> None:
    with pytest.raises(Rejected, match=field) as caught:
        resolve_sampling(Sampling(), {field: value})
    assert caught.value.param == f"settings.{field}"


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_on_a_device_rows_are_drawn_together_as_they_are_one_by_one(data: st.DataObject) -> None:
    vocab = data.draw(st.sampled_from([5, 256, 700]))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    draws = []
    for row in range(data.draw(st.integers(1, 5))):
        sampling = Sampling(
            temperature=data.draw(st.sampled_from([0.0, 0.6, 1.5])),
            top_k=data.draw(st.sampled_from([0, 1, 3, 300])),
            top_p=data.draw(st.sampled_from([1.0, 0.8, 0.99])),
            repetition_penalty=data.draw(st.sampled_from([1.0, 1.3])),
        )
        said = np.array(data.draw(st.lists(st.integers(-1, 4), max_size=4)), dtype=np.int64)
        draws.append(Draw(sampling, seed=row, position=data.draw(st.integers(0, 99)), generated=said))
    logits = torch.randn(len(draws), vocab, generator=generator) * data.draw(st.sampled_from([0.1, 4.0]))
    host, device = RowSampler(draws), RowSampler(draws)
    for _ in range(2):
        with pretending() as mode:
            on_device = logits.to("cuda")
            mode.crossings.clear()
            found = device(on_device)
            wide = [d for d in draws if d.sampling.temperature and not d.sampling.top_k and d.sampling.top_p < 1]
            assert mode.crossings["down"] <= 1 + len(wide)
            assert mode.crossings["read"] <= len(wide)
        assert found.tolist() == host(logits).tolist()
