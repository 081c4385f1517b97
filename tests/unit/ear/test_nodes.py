"""VAD and turn model against the numbers of the package that ships them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from models.ear.nodes import SpeechSubmodule, TurnSubmodule
from mstar.errors import Rejected, WeightsError
from mstar.submodule import STATE, Call, Step
from mstar.tensors import Value

DATA = Path(__file__).parents[2] / "data"
Floats = NDArray[np.float32]


@pytest.fixture(scope="module")
def golden() -> dict[str, Floats]:
    return load_file(DATA / "ear" / "outputs.safetensors")


@pytest.fixture(scope="module")
def spoken() -> list[Floats]:
    pcm = load_file(DATA / "whisper_ct2" / "inputs.safetensors")
    return [(pcm[f"pcm16_{n}"] / 32768).astype(np.float32) for n in range(2)]


@pytest.fixture(scope="module")
def vad(ear: Path) -> SpeechSubmodule:
    return SpeechSubmodule(ear / "silero_vad.onnx")


@pytest.fixture(scope="module")
def turn(ear: Path) -> TurnSubmodule:
    return TurnSubmodule(ear / "smart-turn-v3.2-cpu.onnx")


def call(audio: Value, state: Value = None) -> Call:
    return Call(request="r", walk="w", inputs={"audio": audio}, state=state)


def record_of(output: object) -> Value:
    assert isinstance(output, Mapping)
    return output


def listen(vad: SpeechSubmodule, waves: list[Floats]) -> NDArray[np.float64]:
    """[waves, items], all waves in one batch per item."""
    states: list[Value] = [None] * len(waves)
    heard = []
    for start in range(0, len(waves[0]) - 511, 512):
        calls = [call(wave[start : start + 512], state) for wave, state in zip(waves, states, strict=True)]
        outputs = vad.forward(vad.collate(calls), Step(calls))
        states = [record_of(output) for output in outputs[STATE]]
        heard.append(outputs["speech"])
    return np.array(heard, dtype=np.float64).T


def test_vad(vad: SpeechSubmodule, spoken: list[Floats], golden: dict[str, Floats]) -> None:
    wave = np.concatenate((np.zeros(8192, np.float32), spoken[1], np.zeros(16_000, np.float32)))
    np.testing.assert_allclose(listen(vad, [wave])[0], golden["speech"], atol=1e-5)


def test_a_session_does_not_hear_its_batch_mates(vad: SpeechSubmodule, spoken: list[Floats]) -> None:
    a, b = spoken[1][:10_240], spoken[1][20_480:30_720]
    together = listen(vad, [a, b, a])
    np.testing.assert_array_equal(together, np.concatenate([listen(vad, [wave]) for wave in (a, b, a)]))


def test_the_end_of_the_stream_puts_out_nothing(vad: SpeechSubmodule, spoken: list[Floats]) -> None:
    calls = [call(None, "kept"), call(spoken[0][:512])]
    outputs = vad.forward(vad.collate(calls), Step(calls))
    assert outputs["speech"][0] is None
    assert outputs[STATE][0] == "kept"
    assert outputs["speech"][1] == listen(vad, [spoken[0][:512]])[0, 0]


def test_an_item_of_another_length_is_refused(vad: SpeechSubmodule) -> None:
    with pytest.raises(Rejected, match="512 samples, got 480"):
        vad.collate([call(np.zeros(480, np.float32))])


def test_turn_features(turn: TurnSubmodule, spoken: list[Floats], golden: dict[str, Floats]) -> None:
    mel = turn.collate([call(spoken[0])]).tensors["mel"]
    np.testing.assert_allclose(mel[0], golden["features_0"].astype(np.float32), atol=1e-3)


def test_turn(turn: TurnSubmodule, spoken: list[Floats], golden: dict[str, Floats]) -> None:
    """The model's own 8-bit products round by the processor's instructions: an unsure verdict moves by 0.15."""
    gap = np.zeros(3200, np.float32)
    long = np.concatenate([spoken[1], gap, spoken[1], gap, spoken[0], spoken[1]])
    waves = [spoken[0], spoken[1], spoken[1][:30_000], long]
    found = []
    for wave in waves:
        calls = [call(wave)]
        found += list(turn.forward(turn.collate(calls), Step(calls))["complete"])
    complete = np.array(found, dtype=np.float64)
    np.testing.assert_allclose(complete, golden["complete"], atol=0.2)
    assert ((complete > 0.5) == (golden["complete"] > 0.5)).all()


def test_a_model_that_is_missing_or_another_is_one_line(ear: Path, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"nowhere\.onnx: no such file"):
        SpeechSubmodule(tmp_path / "nowhere.onnx")
    (tmp_path / "torn.onnx").write_bytes(b"torn")
    with pytest.raises(WeightsError, match=r"torn\.onnx: ") as torn:
        SpeechSubmodule(tmp_path / "torn.onnx")
    assert "\n" not in str(torn.value)
    with pytest.raises(WeightsError, match="inputs are input, state, sr, expected input_features"):
        TurnSubmodule(ear / "silero_vad.onnx")
