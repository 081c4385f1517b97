"""SNAC's files: what is refused, and by which name; its noise."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from models.orpheus.nodes.checkpoints import codec
from models.snac.codec import Snac
from models.snac.config import read_config
from models.snac.noise import SeededNoise
from mstar.errors import WeightsError

DATA = Path(__file__).parents[2] / "data" / "orpheus" / "snac"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA, tmp_path / "snac"))


def change(folder: Path, **fields: object) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def test_shape_from_the_config() -> None:
    config = read_config(DATA / "config.json")
    assert (config.rate, config.latent, config.hop, config.frame) == (24_000, 96, 512, 4)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("attn_window_size", 32),
        ("vq_strides", [1, 2, 4]),
        ("vq_strides", []),
        ("decoder_rates", 8),
        ("codebook_size", "256"),
        ("codebook_dim", 0),
        ("noise", None),
    ],
)
def test_a_wrong_field_is_named(folder: Path, field: str, value: object) -> None:
    change(folder, **{field: value})
    with pytest.raises(WeightsError, match=rf"config\.json: {field} "):
        Snac.load(folder)


def test_a_missing_tensor_or_one_of_another_shape_is_named(folder: Path) -> None:
    file = folder / "pytorch_model.bin"
    tensors = torch.load(file, weights_only=True)
    name = "decoder.model.3.block.1.bias"
    torch.save({**tensors, name: torch.zeros(3)}, file)
    with pytest.raises(WeightsError, match=rf"{name} has shape \(3,\)"):
        Snac.load(folder)
    torch.save({key: tensor for key, tensor in tensors.items() if key != name}, file)
    with pytest.raises(WeightsError, match=f"{name} is missing"):
        Snac.load(folder)


class Evil:
    """Writes a file where its pickle is read as code."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.target,)


def test_code_in_a_checkpoint_is_not_run(folder: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    torch.save({"decoder.model.0.bias": Evil(ran)}, folder / "pytorch_model.bin")
    with pytest.raises(WeightsError, match=r"pytorch_model\.bin: "):
        Snac.load(folder)
    assert not ran.exists()


@pytest.mark.parametrize("content", [b"", b"no tensors"])
def test_a_damaged_file_is_named(folder: Path, content: bytes) -> None:
    (folder / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(WeightsError, match=r"pytorch_model\.bin: "):
        Snac.load(folder)
    (folder / "pytorch_model.bin").unlink()
    with pytest.raises(WeightsError, match=r"pytorch_model\.bin: missing"):
        Snac.load(folder)


def test_levels_that_make_no_frame_of_seven_are_refused(folder: Path) -> None:
    change(folder, vq_strides=[4, 2, 2])
    with pytest.raises(WeightsError, match="vq_strides"):
        codec({"snac": str(folder)})


def test_noise_depends_on_its_place_alone() -> None:
    noise = SeededNoise(7, segment=2)
    whole = noise(1, 0, 20_000)
    for start, stop in ((0, 1), (1, 9), (4, 8), (1003, 5001)):
        assert torch.equal(noise(1, start, stop), whole[start:stop])
    assert abs(float(whole.mean())) < 0.03
    assert abs(float(whole.std()) - 1) < 0.03
    assert float(whole.abs().max()) > 3
    for other in (SeededNoise(8, 2), SeededNoise(-7, 2), SeededNoise(7, 3)):
        assert not torch.equal(other(1, 0, 100), whole[:100])
    assert not torch.equal(noise(0, 0, 100), whole[:100])
    assert torch.equal(SeededNoise(7, 2, 0.5)(1, 0, 100), whole[:100] / 2)
