"""π0.5: pictures, a robot's state and an instruction in, a chunk of actions out."""
