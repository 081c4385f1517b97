"""`python -m models.worlds train WORLD` trains a world model, `try WORLD` has one reach goals.

Exit status 1 when fewer goals are reached than `--least` asks for.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from models.vjepa2.config import SHIPPED
from models.worlds.planning import Planned
from models.worlds.recipe import RECIPES
from models.worlds.training import save, train
from models.worlds.trial import at_random, goals, rate, still, told, trip


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m models.worlds", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("train", "try"):
        command = commands.add_parser(name)
        command.add_argument("world", choices=sorted(RECIPES))
        command.add_argument("--seed", type=int, default=0, help="of the training, of the goals")
        command.add_argument("--folder", type=Path, help="of the weights; without one, those that are shipped")
        command.add_argument("--goals", type=int, default=40)
        command.add_argument("--least", type=float, default=0.0, help="share of the goals that has to be reached")
    options = parser.parse_args(arguments)
    folder = options.folder or SHIPPED / options.world
    if options.command == "train":
        torch.set_num_threads(1)
        began = time.monotonic()

        def say(line: str) -> None:
            print(f"{time.monotonic() - began:6.0f} s  {line}", flush=True)

        recipe = RECIPES[options.world]
        save(folder, recipe.config, train(recipe, options.seed, say))
        print(f"written to {folder}")
    return 0 if attempt(options.world, folder, options.goals, options.seed) >= options.least else 1


def attempt(world: str, folder: Path, count: int, seed: int) -> float:
    """Reach goals with a planner, at random and doing nothing, and say how that went → the planner's rate."""
    recipe = RECIPES[world]
    arena = recipe.arena()
    chosen = goals(arena, count, seed)
    best = 0.0
    for name, choose in (("planned", Planned(folder)), ("at random", at_random(seed)), ("still", still)):
        trips = [trip(arena, goal, choose, recipe.steps) for goal in chosen]
        print(told(f"goals of seed {seed}, {name}", trips, arena.unit), flush=True)
        best = max(best, rate(trips)) if name == "planned" else best
    return best


if __name__ == "__main__":
    sys.exit(main())
