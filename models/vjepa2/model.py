"""The V-JEPA 2 family's Walk Graph (torch-free).

    encode      clip → encoder → latents
    predict     clip → encoder → predictor(context, target) → predicted
    classify    clip → encoder → classes
    embed       frames → frame encoder → latents                                     each frame alone
    rollout     frames → frame encoder → course → loop "horizon": rollout ↺ step → [imagined], all at the end
    rollout_streaming                                                     … → imagined, every pass
    imagine                                  … loop "horizon": rollout ↺ step → paint → picture, every pass
    plan        camera ~> look → frame encoder → aim → loop "iterations":
                    sample → imagine_first → loop "horizon": score → imagine ↺ step → improve ↺ belief → plan
                every pass
    plan_image  the same from a picture that comes with the request

A plan takes the newest frame of the camera that is at or behind the position the request is started at: whoever starts
it for frame n says so (`positions={"camera": n}`), else a frame that overtakes the request is missed. Imagined frames
are appended to K/V sequences, one a pass; candidate plans of all requests go through the predictor together.
`imagine` is there if the checkpoint has a decoder of pixels.
"""

from __future__ import annotations

from collections.abc import Mapping

from models.card import Card, Planner
from models.vjepa2.config import PAGES, TINY_WORLD, WorldConfig, read_world_config, world_path
from models.vjepa2.planning import SETTINGS
from mstar.graph.declare import (
    Component,
    DynamicLoop,
    Edge,
    Emit,
    Graph,
    GraphEdge,
    GraphNode,
    LiveInput,
    Partition,
    Section,
    Sequential,
    StreamingGraphEdge,
    Task,
    Walk,
)
from mstar.streaming.policies import LatestChunkPolicy
from mstar.tensors import Value

MOST_FRAMES = 32
"""Frames within which the released world model imagines."""
MOST_ITERATIONS = 100


def given(settings: Mapping[str, Value], name: str) -> bool:
    """Whether a setting is there, and not turned off."""
    return settings.get(name) not in {None, False, "", "0", "false"}


LATENTS = GraphNode("latents", ("tokens",), (Emit("latents", "signal"),))


def _clip_walk(name: str, encoder: str, then: GraphNode) -> Walk:
    return Walk(
        name,
        Sequential(
            (
                GraphNode("clip", ("frames",), (GraphEdge("pixels", encoder),)),
                GraphNode(encoder, ("pixels",), (GraphEdge("tokens", then.name),)),
                then,
            )
        ),
    )


def _video() -> tuple[Walk, ...]:
    predictor = GraphNode("predictor", ("tokens", "context", "target"), (Emit("predicted", "signal"),))
    return (
        _clip_walk("encode", "encoder", LATENTS),
        _clip_walk("predict", "encoder", predictor),
    )


def _classifier() -> tuple[Walk, ...]:
    return (_clip_walk("classify", "class_encoder", GraphNode("classes", ("tokens",), (Emit("classes", "signal"),))),)


def _imagining(imagined: Edge) -> GraphNode:
    """One frame further; `imagined` says where it goes."""
    return GraphNode("rollout", ("step", "moves"), (GraphEdge("step", "rollout"), imagined))


def _rollout(name: str, body: Section, *, accumulated: tuple[Emit, ...] = ()) -> Walk:
    return Walk(
        name,
        Sequential(
            (
                GraphNode("frames", ("frames",), (GraphEdge("pixels", "frame_encoder"),)),
                GraphNode("frame_encoder", ("pixels",), (GraphEdge("tokens", "course"),)),
                GraphNode(
                    "course",
                    ("tokens", "actions", "states"),
                    (GraphEdge("step", "rollout"), GraphEdge("moves", "rollout")),
                ),
                DynamicLoop("horizon", body, MOST_FRAMES, accumulated=accumulated),
            )
        ),
    )


def _iteration() -> Sequential:
    """One iteration of the cross-entropy method: every candidate is imagined to its end and scored frame by frame."""
    horizon = DynamicLoop(
        "horizon",
        Sequential(
            (
                GraphNode(
                    "score", ("step", "target"), (GraphEdge("energy", ""), GraphEdge("onward", "imagine", "step"))
                ),
                GraphNode("imagine", ("step", "moves"), (GraphEdge("step", "score"),)),
            )
        ),
        MOST_FRAMES,
        accumulated=(GraphEdge("energy", "improve", "energies"),),
    )
    moves = tuple(GraphEdge("moves", to) for to in ("imagine_first", "imagine", "improve"))
    return Sequential(
        (
            GraphNode("sample", ("belief",), moves),
            GraphNode(
                "imagine_first", ("step", "moves"), (GraphEdge("step", "score"),), prompt=True, component="imagine"
            ),
            horizon,
            GraphNode(
                "improve",
                ("belief", "moves", "energies"),
                (GraphEdge("belief", "sample"), GraphEdge("belief", "improve"), Emit("plan", "action")),
            ),
        )
    )


def _plan(name: str, look: str, picture: str) -> Walk:
    belief = (GraphEdge("belief", "sample"), GraphEdge("belief", "improve"))
    return Walk(
        name,
        Sequential(
            (
                GraphNode(
                    look,
                    (picture, "goal"),
                    (GraphEdge("pixels", "frame_encoder"), GraphEdge("seen", "aim")),
                    component="look",
                ),
                GraphNode("frame_encoder", ("pixels",), (GraphEdge("tokens", "aim"),)),
                GraphNode(
                    "aim",
                    ("tokens", "seen", "goal", "state"),
                    (GraphEdge("step", "imagine_first"), GraphEdge("target", "score"), *belief),
                ),
                DynamicLoop("iterations", _iteration(), MOST_ITERATIONS),
            )
        ),
    )


def _world(*, decoder: bool) -> tuple[Walk, ...]:
    imagined = Emit("imagined", "signal")
    painted = Sequential(
        (
            _imagining(GraphEdge("imagined", "paint")),
            GraphNode("paint", ("imagined",), (Emit("picture", "image"),)),
        )
    )
    embed = Sequential(
        (
            GraphNode("frames", ("frames",), (GraphEdge("pixels", "frame_encoder"),)),
            GraphNode("frame_encoder", ("pixels",), (GraphEdge("tokens", "latents"),)),
            LATENTS,
        )
    )
    return (
        Walk("embed", embed),
        _rollout("rollout", _imagining(GraphEdge("imagined", "")), accumulated=(imagined,)),
        _rollout("rollout_streaming", _imagining(imagined)),
        *((_rollout("imagine", painted),) if decoder else ()),
        _plan("plan", "watch", "camera"),
        _plan("plan_image", "look", "observation"),
    )


_WATCHING, _IMAGINING, _PLANNING = (f"models.vjepa2.nodes.{part}" for part in ("watching", "imagining", "planning"))

VIDEO = (
    Component("encoder", f"{_WATCHING}:video_encoder"),
    Component("predictor", f"{_WATCHING}:predictor"),
)
CLASSIFIER = (
    Component("class_encoder", f"{_WATCHING}:classifier_encoder"),
    Component("classes", f"{_WATCHING}:classes"),
)
WORLD = (
    Component("frames", f"{_IMAGINING}:frames"),
    Component("frame_encoder", f"{_IMAGINING}:frame_encoder"),
    Component("course", f"{_IMAGINING}:course"),
    Component("rollout", f"{_IMAGINING}:rollout", engine="kv", memory={"pages": PAGES}),
    Component("look", f"{_PLANNING}:look"),
    Component("aim", f"{_PLANNING}:aim", state="session"),
    Component("sample", f"{_PLANNING}:sample"),
    Component("imagine", f"{_IMAGINING}:candidates", engine="kv", memory={"pages": PAGES}),
    Component("score", f"{_PLANNING}:score"),
    Component("improve", f"{_PLANNING}:improve"),
)

DECODER = (Component("paint", f"{_IMAGINING}:paint"),)

CAMERA = LiveInput(
    "camera",
    edges=(StreamingGraphEdge("camera", "world", "watch", LatestChunkPolicy(), bound=2),),
    slices=("frames", "look"),
    full="drop_oldest",
    history=8,
)

_ROLLED = ("frames", "actions", "states")
TASKS = {
    "video": (
        Task("encode", {"video": "encode"}, ("frames",)),
        Task("predict", {"video": "predict"}, ("frames", "context", "target")),
    ),
    "classifier": (Task("classify", {"video": "classify"}, ("frames",)),),
    "world": (
        Task("embed", {"world": "embed"}, ("frames",)),
        Task("rollout", {"world": "rollout"}, _ROLLED),
        Task("rollout_streaming", {"world": "rollout_streaming"}, _ROLLED),
        Task("plan", {"world": "plan"}, ("goal", "state")),
        Task("plan_image", {"world": "plan_image"}, ("observation", "goal", "state")),
    ),
}
WARM = {"iterations": 1, "samples": 8, "topk": 2}
"""A small plan: with it what is made once is made."""
IMAGINE = Task("imagine", {"world": "imagine"}, _ROLLED)
"""Of a world whose checkpoint has a decoder."""


def _world_config(settings: Mapping[str, Value]) -> WorldConfig | None:
    """Sizes of the world model that the settings name. Raises WeightsError."""
    if given(settings, "tiny"):
        return TINY_WORLD
    if isinstance(path := settings.get("world"), str) and given(settings, "world"):
        return read_world_config(world_path(path))
    return None


class VJEPA2:
    """Settings, each a checkpoint's path: `video` (V-JEPA 2), `classifier` (of clips), `world` (V-JEPA 2-AC).

    `world` may name one that comes with the package: `room`, `reacher`. Or `tiny`: all of them with random weights.
    `dtype` (float32, bfloat16): see `models.blocks.precision`.

    The graph has the tasks of those that are given; of all, if none is.
    """

    card = Card("vjepa2")
    settings = ("video", "classifier", "world", "tiny", "dtype")

    def configured(self, settings: Mapping[str, Value]) -> Card:
        """The card with a planner, if the settings name a world model. Raises WeightsError."""
        world = _world_config(settings)
        if world is None:
            return self.card
        planner = Planner(
            horizon=world.planner.horizon,
            action_dim=world.action,
            state_dim=world.state,
            side=world.clip.size,
            rate=world.rate,
            iterations=world.planner.iterations,
            imagine=IMAGINE.name if world.decoder else "",
            settings=SETTINGS,
            warm=WARM,
        )
        return Card("vjepa2", planner=planner)

    def graph(self, settings: Mapping[str, Value]) -> Graph:
        """The Walk Graph. Raises WeightsError for a world model without sizes."""
        world = _world_config(settings)
        decoder = world is not None and bool(world.decoder)
        named = [name for name in TASKS if given(settings, name)]
        parts = list(TASKS) if given(settings, "tiny") or not named else named
        clips = (
            *(_video() if "video" in parts else ()),
            *(_classifier() if "classifier" in parts else ()),
        )
        components = (
            *((Component("clip", f"{_WATCHING}:clip"),) if clips else ()),
            *((Component("latents", f"{_WATCHING}:latents"),) if {"video", "world"} & set(parts) else ()),
            *(VIDEO if "video" in parts else ()),
            *(CLASSIFIER if "classifier" in parts else ()),
            *(WORLD if "world" in parts else ()),
            *(DECODER if decoder else ()),
        )
        return Graph(
            name="vjepa2",
            components=components,
            partitions=(
                *((Partition("video", clips),) if clips else ()),
                *((Partition("world", _world(decoder=decoder)),) if "world" in parts else ()),
            ),
            live=(CAMERA,) if "world" in parts else (),
            tasks=(*(task for part in parts for task in TASKS[part]), *((IMAGINE,) if decoder else ())),
        )


FAMILY = VJEPA2()
