"""Programs that use the server."""
