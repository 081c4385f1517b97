from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from models.pi05.statistics import Quantiles, read_statistics
from mstar.errors import WeightsError

LOW, HIGH = np.array([-2.0, 0.0, 5.0]), np.array([2.0, 1.0, 5.0])


def openpi(path: Path, **changed: object) -> Path:
    one = {"mean": [0.0] * 3, "std": [1.0] * 3, "q01": LOW.tolist(), "q99": HIGH.tolist()} | changed
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"norm_stats": {"state": one, "actions": one}}))
    return path


def lerobot(folder: Path) -> None:
    name = "policy_preprocessor_step_2_normalizer_processor.safetensors"
    steps = [{"registry_name": "device_processor"}, {"registry_name": "normalizer_processor", "state_file": name}]
    (folder / "policy_preprocessor.json").write_text(json.dumps({"steps": steps}))
    values = {"q01": LOW, "q99": HIGH}
    save_file(
        {f"{what}.{k}": v.astype(np.float32) for what in ("observation.state", "action") for k, v in values.items()},
        folder / name,
    )


@pytest.mark.parametrize(
    "place", ["norm_stats.json", "assets/droid/norm_stats.json", "assets/org/droid/norm_stats.json"]
)
def test_openpi_ranges_are_widened(tmp_path: Path, place: str) -> None:
    openpi(tmp_path / place)
    state = read_statistics(tmp_path).state
    assert state is not None
    got = state.normalise(np.array([-2.0, 0.5, 5.0 + 5e-7]))
    assert np.allclose(got, [-1, 0, 0], atol=1e-5)


def test_lerobot_ranges_are_taken_as_they_are(tmp_path: Path) -> None:
    lerobot(tmp_path)
    actions = read_statistics(tmp_path).actions
    assert actions is not None
    assert actions.normalise(np.array([2.0, 1.0, 5.0])).tolist() == [1, 1, -1]
    assert actions.restore(np.array([1.0, -1.0, 1.0])).tolist() == pytest.approx([2, 0, 5])


def test_what_is_normalised_comes_back() -> None:
    values = np.random.default_rng(0).uniform(-3, 3, (7, 2)).astype(np.float32)
    known = Quantiles(LOW, HIGH, 1e-6, 0.0).only(2)
    assert np.allclose(known.restore(known.normalise(values)), values, atol=1e-6)


def test_what_is_missing_or_wrong_is_said_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="the setting `statistics` gives a file"):
        read_statistics(tmp_path)
    (tmp_path / "policy_preprocessor.json").write_text(
        json.dumps({"steps": [{"registry_name": "normalizer_processor"}]})
    )
    with pytest.raises(WeightsError, match="its normaliser has no statistics"):
        read_statistics(tmp_path)
    with pytest.raises(WeightsError, match="state has no q01 and q99"):
        read_statistics(openpi(tmp_path / "a.json", q01=None))
    with pytest.raises(WeightsError, match="of one length"):
        read_statistics(openpi(tmp_path / "b.json", q01=[0.0]))
    with pytest.raises(WeightsError, match="must hold numbers"):
        read_statistics(openpi(tmp_path / "c.json", q99=["a", "b", "c"]))
    (tmp_path / "d.safetensors").write_bytes(b"nothing")
    with pytest.raises(WeightsError, match=r"d\.safetensors"):
        read_statistics(tmp_path / "d.safetensors")
    openpi(tmp_path / "assets/one/norm_stats.json")
    openpi(tmp_path / "assets/two/norm_stats.json")
    with pytest.raises(WeightsError, match="several statistics"):
        read_statistics(tmp_path)
