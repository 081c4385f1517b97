"""The voice family's nodes: factories over the parts, and what joins them."""
