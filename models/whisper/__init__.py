"""Whisper: speech in pieces of up to 30 s → text with times. A part with a checkpoint of its own."""
