"""Nodes of V-JEPA 2-AC: frames in, imagined frames out, one a pass.

`step`, what goes round in a rollout: {"tokens" [candidates or 1, frames, patches, width]: frames that the predictor has
not had yet, "poses" [candidates, all frames so far, state], "given" [1, n, state]: states of frames to come, where the
client knows them}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from models.blocks.precision import device_of
from models.blocks.values import record
from models.vjepa2.config import PAGES, WorldConfig
from models.vjepa2.motion import Floats, moved
from models.vjepa2.network import centred
from models.vjepa2.nodes import checkpoints
from models.vjepa2.nodes.each import Each, array, leaving, numbers, tensor
from models.vjepa2.nodes.watching import EncoderSubmodule
from models.vjepa2.pictures import normalised, picture_of, pictures
from models.vjepa2.world import ActionPredictor, Folding, Frames
from mstar.engine.kv_engine import KVSettings
from mstar.errors import Rejected, WeightsError
from mstar.submodule import Call, KVGeometry, Output, Outputs, Packed, Row, Sampling, Step
from mstar.tensors import Value

POOL = KVSettings(pages=PAGES)
KV_BUDGET = 4 << 30
"""Bytes of K/V memory within which candidates are folded; pages are touched, hence paid for, as they come into use."""
MOST_FOLD = 32
MAIN = "main"
"""Label of the keyed sequence, which stays empty: what is imagined is no prefix of anything else."""


def frame_encoder(settings: Mapping[str, Value]) -> EncoderSubmodule:
    """Single frames, each filling a tubelet of its own."""
    return EncoderSubmodule(checkpoints.world(settings).encoder)


def frames(settings: Mapping[str, Value]) -> Each:
    """frames [n, height, width, 3] uint8 → pixels [n, 1, 3, size, size]."""
    size = checkpoints.world(settings).config.clip.size
    return Each(
        lambda call: {"pixels": normalised(pictures("frames", call.inputs["frames"]), size, "square")[:, None]},
        ("pixels",),
    )


def course(settings: Mapping[str, Value]) -> Each:
    """tokens [t, patches, width] of the frames seen, actions [n, action], states [t … n, state] → step, moves.

    Frame i goes with action i and state i; the frames from t on are imagined. Refuses what does not fit together.
    """
    config = checkpoints.world(settings).config

    def run(call: Call) -> Mapping[str, Output]:
        tokens = tensor(call.inputs["tokens"])
        seen = len(tokens)
        actions = numbers("actions", call.inputs["actions"], -1, config.action)
        states = numbers("states", call.inputs["states"], -1, config.state)
        if not seen <= len(states) <= len(actions):
            raise Rejected(
                f"states: {len(states)} for {seen} frames and {len(actions)} actions; each frame has one of each",
                param="states",
            )
        if len(actions) > config.clip.steps:
            raise Rejected(
                f"actions: {len(actions)}, the model imagines within {config.clip.steps} frames", param="actions"
            )
        horizon = call.settings.get("horizon")
        if isinstance(horizon, int) and seen - 1 + horizon > len(actions):
            raise Rejected(
                f"horizon is {horizon}, {len(actions)} actions reach {len(actions) - seen + 1}", param="horizon"
            )
        step: dict[str, Value] = {"tokens": tokens[None], "poses": states[None, :seen], "given": states[None]}
        return {"step": step, "moves": actions[None]}

    return Each(run, ("step", "moves"))


def fold_of(config: WorldConfig) -> int:
    """How many candidates lie side by side in a sequence, for the K/V memory to stay within its budget."""
    each = config.predictor.depth * 2 * config.predictor.width * 4 * POOL.pages * POOL.page_size
    return max(1, min(MOST_FOLD, KV_BUDGET // each))


def most_candidates(config: WorldConfig, horizon: int) -> int:
    """Candidates of one plan for which the K/V memory has room."""
    pages = -(-horizon * config.frame_tokens // POOL.page_size)
    return POOL.pages // pages * fold_of(config)


class ImaginingSubmodule:
    """step, moves [candidates, n, action] → step, one frame further.

    Appends the step's frames to the candidates' sequences and predicts the frame after the last: tokens normalised as
    those of the encoder, and the pose that the last action leads to. `alone` (a rollout): there is one candidate; stops
    when there are no actions left, and gives out `imagined`: {"tokens" [patches, width], "state" [state], "frame": n}.
    """

    max_batch = 8
    sampling: Sampling | None = None

    def __init__(self, network: ActionPredictor, *, fold: int, sequences: int, alone: bool) -> None:
        """`fold`: see `Folding`; `sequences`: most of a request."""
        self._alone = alone
        sizes = network.config.predictor
        self._network = network
        self._fold = fold
        self._labels = tuple(f"group {n}" for n in range(sequences))
        labels = (MAIN, *self._labels)
        self.geometry = KVGeometry(sizes.depth, sizes.heads * fold, sizes.head_dim, network.dtype, labels)

    def keys(self, call: Call) -> np.ndarray:
        """Of the main sequence, into which nothing is put."""
        return np.zeros(1, np.int64)

    def collate(self, calls: Sequence[Call]) -> Packed:
        rows = []
        for index, call in enumerate(calls):
            new = self._frames(call)
            moves, size = array(call.inputs["moves"]), self._network.config.frame_tokens
            goes_on = new.first + new.count < moves.shape[1]
            sequences = Folding(self._fold, ()).sequences(new.candidates)
            rows += [
                Row(index, new.count * size, label, causal=False, store=goes_on, blocks=(size,) * new.count)
                for label in self._labels[:sequences]
            ]
        return Packed({}, tuple(rows))

    def forward(self, packed: Packed, step: Step) -> Outputs:
        assert step.attention is not None
        batch = [self._frames(call) for call in step.calls]
        hidden = self._network.forward(batch, step.attention, self._fold)
        steps: list[Value] = []
        imagined: list[Value] = []
        for call, states in zip(step.calls, hidden, strict=True):
            tokens = centred(self._network.predicted(states[:, -1:]))
            poses = self._poses(call)
            steps.append({**record(call.inputs["step"]), "tokens": tokens, "poses": poses})
            if self._alone:
                imagined.append({"tokens": leaving(tokens[0, 0]), "state": poses[0, -1], "frame": poses.shape[1] - 1})
        return {"step": steps, "imagined": imagined} if self._alone else {"step": steps}

    def verdict(self, call: Call, outputs: Mapping[str, Output]) -> bool:
        return (
            self._alone and array(record(call.inputs["step"])["poses"]).shape[1] == array(call.inputs["moves"]).shape[1]
        )

    def _frames(self, call: Call) -> Frames:
        step, moves = record(call.inputs["step"]), array(call.inputs["moves"])
        tokens, poses = tensor(step["tokens"]).to(self._network.device), array(step["poses"])
        new = slice(poses.shape[1] - tokens.shape[1], poses.shape[1])
        # Products may be summed in another order where strides are others, and what has travelled is contiguous.
        parts = (part[:, new].copy() for part in (moves, _spread(poses, len(moves))))
        actions, states = (torch.from_numpy(part).to(tokens.device) for part in parts)
        return Frames(tokens, actions, states, new.start)

    def _poses(self, call: Call) -> Floats:
        """[candidates, frames so far + 1, state]."""
        step, moves = record(call.inputs["step"]), array(call.inputs["moves"])
        poses = array(step["poses"])
        last = poses.shape[1]
        given = step.get("given")
        if given is not None and last < array(given).shape[1]:
            after = array(given)[:, last]
        else:
            after = moved(self._network.config.motion, _spread(poses[:, -1], len(moves)), moves[:, last - 1])
        return np.concatenate((_spread(poses, len(moves)), after[:, None]), axis=1)


def _spread(x: Floats, candidates: int) -> Floats:
    """[1 or candidates, …] → [candidates, …]."""
    return np.broadcast_to(x, (candidates, *x.shape[1:]))


def rollout(settings: Mapping[str, Value]) -> ImaginingSubmodule:
    """One course of actions."""
    return ImaginingSubmodule(checkpoints.world(settings).predictor, fold=1, sequences=1, alone=True)


def candidates(settings: Mapping[str, Value]) -> ImaginingSubmodule:
    """Candidate plans, all at once."""
    network = checkpoints.world(settings).predictor
    fold = fold_of(network.config)
    sequences = most_candidates(network.config, 1) // fold
    return ImaginingSubmodule(network, fold=fold, sequences=sequences, alone=False)


def paint(settings: Mapping[str, Value]) -> Each:
    """imagined → picture {"picture" [size, size, 3] uint8, "state", "frame"}. Raises WeightsError without a decoder."""
    decoder = checkpoints.world(settings).decoder
    if decoder is None:
        raise WeightsError("vjepa2: the world model's checkpoint has no decoder of pixels")
    device = device_of(settings)

    def run(call: Call) -> Mapping[str, Output]:
        imagined = record(call.inputs["imagined"])
        pixels = decoder(torch.tensor(array(imagined["tokens"]), device=device))
        return {"picture": {"picture": picture_of(pixels), "state": imagined["state"], "frame": imagined["frame"]}}

    return Each(run, ("picture",))
