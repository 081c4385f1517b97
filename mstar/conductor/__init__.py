"""Which walk comes next, who runs what, who is there: one state machine per request and partition (torch-free)."""
