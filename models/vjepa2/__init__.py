"""V-JEPA 2 and V-JEPA 2-AC: video encoder, masked predictor, and a world model that plans."""
