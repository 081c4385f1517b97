"""A family without weights that uses every primitive of the runtime: the documentation's example and the tests' engine.

It holds a conversation as the `voice` family does: tones are its words, its language model is scripted, its speech is
tones again. What it hears, says and remembers goes through the same walks, streams, caches and credits as the real one.
"""
