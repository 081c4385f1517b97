"""The OpenAI routes beside speech and Realtime: transcription, chat, completion, models."""
