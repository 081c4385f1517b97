"""What `/metrics` says, in Prometheus' words."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from mstar.client import Request
from mstar.tensors import Value
from server.events.server import (
    Error,
    InputAudioBufferCommitted,
    Mark,
    ResponseDone,
    ServerEvent,
    SpeechStarted,
    TurnMarks,
)
from server.metrics_workers import WorkerNumbers

CONTENT_TYPE = CONTENT_TYPE_LATEST
_FAST = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)


class Metrics:
    """One per server; sessions report what they send."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        into = self.registry
        self.sessions = Gauge("mstar_sessions", "Sessions open now.", ["protocol"], registry=into)
        self.refused = Counter("mstar_refused", "Sessions and requests refused.", ["code"], registry=into)
        self.turns = Counter("mstar_turns", "Turns of users that were committed.", registry=into)
        self.responses = Counter("mstar_responses", "Responses by how they ended.", ["status"], registry=into)
        self.barge_ins = Counter("mstar_barge_ins", "Responses ended by the user speaking.", registry=into)
        self.speech = Counter("mstar_speech_started", "Times that a user began to speak.", registry=into)
        self.errors = Counter("mstar_errors", "Error events sent to clients.", ["code"], registry=into)
        self.first_audio = Histogram(
            "mstar_first_audio_seconds",
            "From the last word of the user to the first sound given to the client.",
            buckets=_FAST,
            registry=into,
        )
        self.first_chunk = Histogram(
            "mstar_first_chunk_seconds",
            "From the start of a request to the first chunk of each of its outputs.",
            ["task", "output"],
            buckets=_FAST,
            registry=into,
        )
        self.slack = Histogram(
            "mstar_playout_slack_seconds",
            "Sound that a listener still had to play when more of the answer was given to it.",
            buckets=(0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 1.75, 2.0),
            registry=into,
        )
        self.barge_in = Histogram(
            "mstar_barge_in_seconds",
            "From the arrival of the first sound of an interruption to the end of the answer.",
            buckets=_FAST,
            registry=into,
        )
        self.freed = Histogram(
            "mstar_disconnect_to_free_seconds",
            "From the end of a session to the moment from which the runtime holds nothing of it.",
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5),
            registry=into,
        )
        self.held = Gauge("mstar_held", "What the runtime holds now.", ["process", "name"], registry=into)
        self.tasks = Gauge("mstar_event_loop_tasks", "Tasks of the server's event loop.", registry=into)
        self.failed = Counter("mstar_sessions_failed", "Sessions that ended by a fault of the server.", registry=into)
        self.silent = Counter("mstar_runtime_silent", "Times that the runtime did not answer.", registry=into)
        self.underruns = Counter(
            "mstar_underruns", "Times that an answer's sound was late for its listener.", registry=into
        )
        self.chunks = Counter(
            "mstar_chunks", "Robots' chunks of actions by how they ended.", ["protocol", "outcome"], registry=into
        )
        self.frames = Counter(
            "mstar_frames", "Robots' camera frames: used, or dropped for a newer one.", ["fate"], registry=into
        )
        self.frame_age = Histogram(
            "mstar_frame_age_seconds",
            "From the capture of a chunk's oldest frame to the chunk's leaving.",
            buckets=_FAST,
            registry=into,
        )
        self.loop_lag = Histogram(
            "mstar_loop_lag_seconds",
            "How late the server's event loop is.",
            buckets=(0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0),
            registry=into,
        )
        self.runtime = Gauge("mstar_runtime", "Counters of the runtime.", ["process", "name"], registry=into)
        self.workers = WorkerNumbers()
        into.register(self.workers)

    def came(self, request: Request, output: str, seconds: float) -> None:
        """A request's first emission of an output has come."""
        self.first_chunk.labels(request.task, output).observe(seconds)

    def event(self, event: ServerEvent) -> None:
        """Count an event that is being sent."""
        match event:
            case ResponseDone(response=response):
                self.responses.labels(response.status).inc()
                if response.status_details is not None and response.status_details.reason == "turn_detected":
                    self.barge_ins.inc()
            case TurnMarks(marks=marks):
                self._first_audio(marks)
            case InputAudioBufferCommitted():
                self.turns.inc()
            case SpeechStarted():
                self.speech.inc()
            case Error(error=error):
                self.errors.labels(error.code or "").inc()
            case _:
                pass

    def _first_audio(self, marks: Mapping[str, Mark]) -> None:
        if "speech_end" in marks and "heard" in marks:
            self.first_audio.observe((marks["heard"].ms - marks["speech_end"].ms) / 1000)

    def told(self, gauge: Gauge, process: str, value: Value, prefix: str = "") -> None:
        """Numbers that a process of the runtime tells: names → numbers, or maps of such."""
        if isinstance(value, Mapping):
            for name, inner in value.items():
                inside = f"{prefix}{name}." if isinstance(inner, Mapping) else f"{prefix}{name}"
                self.told(gauge, process, inner, inside)
        elif isinstance(value, (int, float)):
            gauge.labels(process, prefix).set(value)

    def text(self) -> bytes:
        return generate_latest(self.registry)
