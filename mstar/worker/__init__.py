"""One rank: its part of the walks, its scheduler, its one compute thread."""
