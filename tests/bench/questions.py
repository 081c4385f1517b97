"""What the benchmark's users say, spoken by the voice beforehand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from media.resample import resample
from tests.bench.peers import Speaker
from tests.bench.sound import RATE, Pcm, trimmed

QUESTIONS = (
    "What is the capital of France?",
    "Can you name three fruits that are red?",
    "Why is the sky blue?",
    "How do plants make their food?",
    "What is the largest animal in the sea?",
    "Please tell me a fact about the moon.",
    "Who wrote the play about Romeo and Juliet?",
    "How many legs does a spider have?",
    "What should I cook for dinner tonight?",
    "Where do penguins live?",
    "What is the difference between a lake and a river?",
    "Can you explain what a volcano is?",
    "Which planet is closest to the sun?",
    "What do bees use to make honey?",
    "How can I fall asleep faster?",
    "What is the best way to learn a language?",
    "Why do leaves change their color in autumn?",
    "What is bread made of?",
    "How does a bicycle stay upright?",
    "What language do people speak in Brazil?",
)
INTERRUPTION = "Stop now please, I have another question."
STORIES = (
    "Tell me a very long story about a fox and a bear.",
    "Tell me a very long story about a ship at sea.",
    "Tell me a very long story about a lost city.",
    "Tell me a very long story about two old friends.",
)


def spoken(texts: Sequence[str]) -> list[Pcm]:
    """Each text as sound at 24 kHz, from its first to its last sample above −45 dBFS."""
    speaker = Speaker()
    whole = [np.concatenate(list(speaker.sentences(text))) for text in texts]
    return [trimmed(resample(pcm, speaker.rate, RATE)) for pcm in whole]
