"""What a family offers to a server (torch-free)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mstar.tensors import Value


@dataclass(frozen=True, slots=True)
class Conversation:
    """A family one can talk with. Names of its tasks, and the rates of its sound.

    Tasks and their inputs → emissions:
      listen      (standing; live stream `mic`)              → `speech`: float, one per mic item
      warm        history, tools                             → nothing of use
      judge       audio: Slice(mic)                          → `complete`: float, the turn model's p(turn is over)
      transcribe  audio: Slice(mic)                          → `transcript`: {"text", "segments":
                                                                 [{"text","start","end"}]} in seconds
      answer_*    history: [{"role","content"}], tools,      → `transcript` of the audio, as above,
                  audio: Slice(mic) in answer_audio_*          `text`: {"text": delta, "at": first character,
                                                                 "tokens": of the answer so far},
                                                               `alignment`: {"words": int64 [w, 4]}: first and last
                                                                 character of the text, first and last sample,
                                                               `audio`: {"pcm": float32 [n], "start": sample} and
                                                                 "trimmed" if silence was cut from the beginning:
                                                                 word times count those samples,
                                                               `call`: {"name","arguments"}: a function it calls,
                                                               `begun`: {"prompt","reused"}, before any text,
                                                               `usage`: {"prompt","reused","generated","reason"}
      complete    prompt: a text to go on with               → `begun`, `text`, `usage`
    `answer_audio_*` takes the microphone's words as the last user message, behind `history`.
    The emissions `text`, `alignment` and `audio` come in only those answers whose name says so: `_speech` or `_text`.
    """

    mic_rate: int = 16000
    mic_item: int = 512
    mic_history: int = 4096  # mic items that slices may reach back
    context: int = (
        2048  # tokens of a prompt; a longer one fails with code `context_length_exceeded` before any emission
    )
    speech_rate: int = 22050
    voices: tuple[str, ...] = ("default",)
    takes: tuple[str, ...] = ("text", "audio")  # modalities that the parts of a message may have
    listen: str = "listen"
    judge: str = "judge"
    warm: str = ""  # a task that reads history and tools ahead of an answer, so that it need not; "" = there is none
    transcribe: str = "transcribe"
    complete: str = ""  # "" = it goes on with no text
    forces_calls: bool = False  # the setting `tool_choice`: "required" or {"name"} makes an answer a call
    answer: Mapping[tuple[bool, bool], str] = field(
        default_factory=lambda: {
            (True, True): "answer_audio_speech",
            (True, False): "answer_audio_text",
            (False, True): "answer_speech",
            (False, False): "answer_text",
        }
    )  # (audio in, speech out) → task


@dataclass(frozen=True, slots=True)
class Speech:
    """A family that says what a client writes. Names of its task and stream, and what its sound is like.

    Task `say` (no inputs), fed by the request's own live stream `written`: pieces of text, cut anywhere; a cut of the
    stream is a border (flush), its end ends the response. The last item must be a cut, an empty one if need be: an end
    that comes by itself, behind an item that was taken, runs no node any more, and text that no clause has taken is not
    said. Settings of the request: `voice`, `speed`, `seed`. Emissions:
      `audio`      {"pcm": float32 [n], "start": first sample of the response's audio}, and "trimmed" if silence was cut
                   from the beginning
      `alignment`  as of `Conversation`, its characters those of all the text written; only if the family is `aligned`
      `usage`      {"prompt","reused","generated","reason": "stop" | "length"}, one a stretch of text; only of a family
                   whose voice is a language model
    """

    rate: int
    voices: tuple[str, ...]  # the first is the voice of a request that names none
    say: str = "say"
    written: str = "written"
    aligned: bool = True
    speeds: tuple[float, float] = (0.25, 4.0)  # least and most that the setting `speed` may be


@dataclass(frozen=True, slots=True)
class Recognition:
    """A family that writes down sound of any length.

    Task `recognise` (no inputs), fed by the request's own live stream `sound`: float32 [n] at `rate`, items of any
    size, the last one with a cut. A client is at most `ahead` seconds ahead of what was recognised. Settings:
    `language` (one of `languages`; absent = the first), and where the family takes them `transcript_prompt` (text that
    came before), `transcript_temperature`, `seed`. Emissions:
      `heard`       {"text": delta}, as it is written
      `recognised`  one a piece of the sound, times in seconds: {"text", "start", "end", "no_speech" (probability),
                    "language", "segments": [{"text", "start", "end", "tokens", "logprob" (mean), "compression"}],
                    "words": [{"text", "start", "end", "logprob"}], "tokens": [{"text", "bytes", "logprob"}]}
    """

    rate: int = 16_000
    languages: tuple[str, ...] = ("en",)
    prompts: bool = False  # `transcript_prompt` and `transcript_temperature` have an effect
    ahead: float = 60.0
    item: float = 30.0  # seconds of an item
    recognise: str = "recognise"
    sound: str = "sound"


Key = tuple[str, ...]
"""Where a value is in an observation: a key, or keys of maps inside one another. `/` joins them to a name."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A family that answers an observation with a chunk of actions.

    Task `act`, input `observation`: a map with a picture (uint8 [height, width, 3] or [3, height, width]) at each of
    `cameras` that there is, numbers at each of `state`, and `prompt`. If `blends`, it may hold `prev_chunk`
    [rows, action_dim] (what the chunk before says for the first rows of the new one) and `delay_steps` (rows that will
    be over when the chunk arrives). Settings of a request: `seed`, and those named by `settings`. Emission:
      `actions`  {"actions": float32 [horizon, action_dim], "masked": cameras that were not there}
    """

    horizon: int
    action_dim: int
    cameras: tuple[Key, ...]
    state: Mapping[Key, int]  # → how many numbers; 0 = any
    side: int  # pixels of the square that pictures are fitted into
    rate: float = 0.0  # control steps per second; 0 = not known
    blends: bool = False
    act: str = "act"
    observation: str = "observation"
    settings: tuple[str, ...] = ()
    warm: Mapping[str, Value] | None = None  # settings of the request that is asked before anybody's; None = none is


@dataclass(frozen=True, slots=True)
class Planner:
    """A family that plans actions towards a goal.

    Task `plan`, inputs `goal` (a picture, {"image"}, {"latent"} or {"id"}; an id beside the others names it for the
    session) and `state` [state_dim], fed by the session's live stream `camera`: pictures uint8 [height, width, 3], of
    which the newest at or behind the request's position is planned from. `plan_image` takes one as the input
    `observation`. Settings of a request: `seed`, `deadline_ms`, and those named by `settings`. Emission:
      `plan`  {"actions": float32 [horizon, action_dim], "iteration": from 1, "final", "deadline_hit", "energy",
              "elapsed_ms", "observation": item of the stream, or -1}, after every iteration
    A family that can show what it imagines has a task `imagine`: inputs `frames` (pictures, or a slice of the camera's
    stream), `actions` [n, action_dim], and `states` [frames …, state_dim]: those of the frames. Emission, for every
    action from the last frame's on, as soon as it is imagined:
      `picture`  {"picture": uint8 [side, side, 3], "state": float32 [state_dim], "frame": number, the first one's is 0}
    """

    horizon: int  # unless the request asks for another
    action_dim: int
    state_dim: int
    side: int  # pixels of the square that pictures are fitted into
    rate: float  # actions per second
    iterations: int
    plan: str = "plan"
    plan_image: str = "plan_image"
    camera: str = "camera"
    imagine: str = ""  # "" = what it imagines can not be shown
    settings: tuple[str, ...] = ()
    warm: Mapping[str, Value] | None = None  # settings of the request that is asked before anybody's; None = none is


@dataclass(frozen=True, slots=True)
class Card:
    """A family as the server sees it."""

    name: str
    conversation: Conversation | None = None
    speech: Speech | None = None
    policy: Policy | None = None
    planner: Planner | None = None
    recognition: Recognition | None = None
    created: int = 0  # unix seconds, for /v1/models
