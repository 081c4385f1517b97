"""Code of the toy family's components."""
