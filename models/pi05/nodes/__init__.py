"""Code of the π0.5 family's components."""
