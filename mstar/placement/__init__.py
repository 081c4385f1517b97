"""Which rank runs what: YAML → `Placement`, refused with `path:line: message` when it can not be (torch-free).

    ranks:
      ear:  {device: cpu, threads: 1}
      main: {device: cpu, threads: 2}
    families:
      voice:
        default: main
        partitions: {vocoder: spare}         # all nodes of a partition
        nodes:
          vad: ear                           # a node, or a component with all its nodes
          acoustic: [main, spare]            # each session gets one of them
          LM: {prefill: main, decode: spare} # by walk
        memory:
          LM: {bytes: 512M, kept: 1}         # of its K/V, see `mstar.placement.memory`

A node's own entry counts before its component's, that before its partition's; nodes that none of them names run on the
family's `default` rank.
"""

from mstar.placement.lines import source_told
from mstar.placement.place import Placement, Rank, one_rank
from mstar.placement.read import placement_of, read_placement, tree_of
from mstar.placement.seats import Placed, Seating

__all__ = [
    "Placed",
    "Placement",
    "Rank",
    "Seating",
    "one_rank",
    "placement_of",
    "read_placement",
    "source_told",
    "tree_of",
]
