"""The ear: is somebody speaking (Silero VAD), has the speaker finished (smart-turn). Two parts with checkpoints."""
