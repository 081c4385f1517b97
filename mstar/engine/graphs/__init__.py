"""Steps of a network captured as CUDA graphs: sizes, buffers, and who records and replays."""
