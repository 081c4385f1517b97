"""V-JEPA 2 against what the published code gives for the same weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from models.vjepa2.config import read_video_config
from models.vjepa2.network import Encoder
from models.vjepa2.nodes.watching import classes, clip, latents, predictor, video_encoder
from models.vjepa2.pictures import normalised
from models.vjepa2.predictor import Classifier, MaskedPredictor
from models.vjepa2.weights import Loaded, read_weights
from mstar.engine.api import Completed, Firing
from mstar.engine.stateless import StatelessEngine
from mstar.tensors import Value

DATA = Path(__file__).parent.parent / "data" / "vjepa2"
INPUTS = load_file(DATA / "inputs.safetensors")
OUTPUTS = load_file(DATA / "outputs.safetensors")


def close(got: Tensor, wanted: Tensor, tolerance: float = 2e-4) -> None:
    torch.testing.assert_close(got, wanted, atol=tolerance, rtol=0)


@pytest.fixture(scope="module")
def weights() -> Loaded:
    return read_weights(DATA)


@pytest.fixture(scope="module")
def encoder(weights: Loaded) -> Encoder:
    config = read_video_config(DATA)
    return Encoder(weights, config.clip, config.encoder)


@pytest.fixture(scope="module")
def masked(weights: Loaded) -> MaskedPredictor:
    return MaskedPredictor(weights, read_video_config(DATA))


@pytest.fixture(scope="module")
def classifier_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The classifier as the hub has it: encoder and head in one file."""
    folder = tmp_path_factory.mktemp("classifier")
    tensors = {f"vjepa2.{name}": tensor for name, tensor in load_file(DATA / "model.safetensors").items()}
    save_file(tensors | load_file(DATA / "classifier" / "head.safetensors"), folder / "model.safetensors")
    (folder / "config.json").write_text((DATA / "classifier" / "config.json").read_text())
    return folder


@pytest.mark.parametrize(
    ("clip_name", "tokens"),
    [
        ("pixel_values_videos", "encoder_out"),
        ("image_1frame", "encoder_out_1frame"),
        ("short_clip", "encoder_out_short"),
    ],
)
def test_encoder(encoder: Encoder, clip_name: str, tokens: str) -> None:
    close(encoder(INPUTS[clip_name]), OUTPUTS[tokens])


def test_predictor_of_everything_from_everything(masked: MaskedPredictor) -> None:
    tokens = OUTPUTS["encoder_out"][0]
    everywhere = torch.arange(len(tokens))
    close(masked(tokens, everywhere, everywhere), OUTPUTS["predictor_out_full"][0])


def test_predictor_of_masked_places_in_any_order(masked: MaskedPredictor) -> None:
    context, target = INPUTS["context_mask"][0], INPUTS["target_mask"][0]
    assert (target.diff() < 0).any()
    predicted = masked(OUTPUTS["encoder_out"][0], context, target)
    close(predicted, OUTPUTS["predictor_out_masked"][0])
    turned = masked(OUTPUTS["encoder_out"][0], context.flip(0), target.flip(0))
    close(turned.flip(0), predicted, 2e-6)


def test_classifier(classifier_folder: Path, encoder: Encoder) -> None:
    network = Classifier(read_weights(classifier_folder), read_video_config(classifier_folder))
    tokens = encoder(INPUTS["pixel_values_videos"])
    close(network.pool(tokens), OUTPUTS["pooler_out"])
    close(network(tokens), OUTPUTS["class_logits"])


def test_every_tensor_of_the_checkpoint_is_used(weights: Loaded) -> None:
    config = read_video_config(DATA)
    Encoder(weights, config.clip, config.encoder)
    MaskedPredictor(weights, config)
    assert weights.untaken("") == ()


def test_preprocessing() -> None:
    case = load_file(DATA / "preprocess.safetensors")
    close(normalised(case["video"], 64, "centre"), case["pixel_values_videos"].float(), 2e-3)


def test_the_nodes_give_what_the_networks_give(classifier_folder: Path, encoder: Encoder) -> None:
    settings: dict[str, Value] = {"video": str(DATA), "classifier": str(classifier_folder)}
    engine = StatelessEngine(
        {
            "clip": clip(settings),
            "encoder": video_encoder(settings),
            "latents": latents(settings),
            "predictor": predictor(settings),
            "classes": classes(settings),
        }
    )

    def fire(component: str, **inputs: Value) -> dict[str, object]:
        [outcome] = engine.step([Firing("s", "s.0", component, "walk", inputs)])
        assert isinstance(outcome, Completed), outcome
        return dict(outcome.outputs)

    frames = load_file(DATA / "preprocess.safetensors")["video"].numpy()
    pixels = fire("clip", frames=frames)["pixels"]
    assert isinstance(pixels, Tensor)
    tokens = fire("encoder", pixels=pixels)["tokens"]
    assert isinstance(tokens, Tensor)
    close(tokens, encoder(pixels))
    context, target = INPUTS["context_mask"][0].numpy(), INPUTS["target_mask"][0].numpy()
    published = OUTPUTS["encoder_out"]
    predicted = fire("predictor", tokens=published, context=context, target=target)["predicted"]
    close(torch.as_tensor(predicted), OUTPUTS["predictor_out_masked"][0])
    found = fire("classes", tokens=published)["classes"]
    assert isinstance(found, dict)
    close(torch.as_tensor(found["logits"]), OUTPUTS["class_logits"][0])
    names = json.loads((DATA / "config.json").read_text())["id2label"]
    assert found["label"] == names[str(int(OUTPUTS["class_logits"][0].argmax()))]
