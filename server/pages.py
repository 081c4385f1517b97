"""The web pages as static files: right types, short-lived caches, no foreign code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".wav": "audio/wav",
}
POLICY = (
    "default-src 'self'; script-src 'self'; worker-src 'self' blob:; style-src 'self'; img-src 'self' data:; "
    "media-src 'self' blob:; connect-src 'self' ws: wss:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "microphone=(self), camera=(self)",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",  # may be kept, is asked for again: an ETag answers with 304
}


def web_folder() -> Path:
    """The pages beside this package."""
    return Path(__file__).parent.parent / "web"


def pages(folder: Path | None) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Serves the files of a folder; what is not a known type of file, hidden or outside is not found."""
    root = (folder or web_folder()).resolve()

    async def page(request: web.Request) -> web.StreamResponse:
        path = _file(root, request.match_info.get("path") or "index.html")
        if path is None:
            raise web.HTTPNotFound(text="not found")
        return web.FileResponse(path, headers={**HEADERS, "Content-Type": TYPES[path.suffix]})

    return page


def _file(root: Path, name: str) -> Path | None:
    """A file of the pages by its name, if there is one."""
    try:
        path = (root / name).resolve()
        if path.is_dir():
            path = path / "index.html"
        hidden = any(part.startswith(".") or part == "node_modules" for part in path.parts[len(root.parts) :])
        shown = path.is_relative_to(root) and not hidden and path.suffix in TYPES
        return path if shown and path.is_file() else None
    except (OSError, ValueError):  # a name that is too long, or holds a NUL, is no file's
        return None
