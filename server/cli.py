"""The command `mstar`: serve families, replay what was recorded, draw graphs, pull weights."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from models.pull import Printer, pull
from models.registry import BUILT_IN, card_of, drawn, family, module_of
from mstar.client import Patience
from mstar.errors import GraphError, Rejected, WeightsError, WorkerLost
from mstar.placement import Placement, one_rank, read_placement
from server import arguments
from server.limits import Allowance
from server.record.entries import read
from server.record.play import play
from server.serve import run
from server.settings import Settings


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="mstar", description="Interactive streaming server for composite models.")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="serve families over HTTP, WebSocket and WebRTC")
    families = f"what to serve: {', '.join(sorted(BUILT_IN))}, or the module of a family of yours (voice)"
    serve.add_argument("families", nargs="*", default=["voice"], metavar="FAMILY", help=families)
    serve.add_argument("--host", default="127.0.0.1", help="where to listen (%(default)s); 0.0.0.0 = everywhere")
    serve.add_argument("--port", type=arguments.port, default=8000, help="(%(default)s); 0 = one that is free")
    serve.add_argument("--placement", type=Path, metavar="FILE", help="YAML: which rank runs what")
    serve.add_argument("--tiny", action="store_true", help="small parts of random weights, of families that have them")
    serve.add_argument("--llm", metavar="PATH", help="another language model: a checkpoint directory or a GGUF file")
    serve.add_argument("--set", action="append", default=[], metavar="FAMILY.NAME=VALUE", help="a family's setting")
    serve.add_argument(
        "--api-key", action="append", default=[], metavar="KEY", help="a key that clients must bring; may be repeated"
    )
    serve.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="a name that this server is reached by"
    )
    serve.add_argument(
        "--allow-origin", action="append", default=[], metavar="URL", help="a web origin whose pages may use it"
    )
    serve.add_argument(
        "--max-sessions", type=arguments.count, default=32, metavar="N", help="sessions at once (%(default)s)"
    )
    for name, kind, what in (
        ("sessions", arguments.bound, "sessions at once"),
        ("requests", arguments.bound, "sessions and requests begun a minute"),
        ("characters", arguments.bound, "characters of text a minute"),
        ("seconds", arguments.amount, "seconds of sound heard a minute"),
    ):
        told = f"of one key: most {what}; 0 = no bound"
        serve.add_argument(f"--key-{name}", type=kind, default=0, metavar="N", help=told)
    for name, kind, default, what in (
        ("idle", arguments.seconds, 900.0, "longest silence of a client on a socket"),
        ("session", arguments.seconds, 3600.0, "longest life of a session"),
        ("drain", arguments.amount, 10.0, "time for open sessions after SIGTERM"),
        ("silent", arguments.seconds, Patience().silent, "a worker silent for so long is replaced"),
        ("step", arguments.seconds, Patience().step, "a worker whose step takes so long is replaced"),
        ("waiting", arguments.amount, Patience().waiting, "what is asked of a worker being replaced waits so long"),
    ):
        serve.add_argument(f"--{name}-seconds", type=kind, default=default, metavar="S", help=f"{what} (%(default)g)")
    serve.add_argument(
        "--warm-spare", action="store_true", help="keep a process loaded that takes a lost worker's place sooner"
    )
    serve.add_argument("--strict-truncate", action="store_true", help="refuse truncation beyond an item's end")
    serve.add_argument("--seed", type=int, help="draw all answers with this seed: equal turns are answered equally")
    serve.add_argument("--tls", nargs=2, type=Path, metavar=("CERT", "KEY"), help="speak HTTPS with these PEM files")
    serve.add_argument("--web", type=arguments.pages, metavar="DIR", help="other pages than those that come with it")
    serve.add_argument(
        "--candidate",
        action="append",
        type=arguments.candidate,
        default=[],
        metavar="[PUBLIC=]ADDRESS[@FIRST-LAST]",
        help="WebRTC: an address offered to peers, with a port range",
    )
    serve.add_argument(
        "--ice-server",
        action="append",
        type=arguments.ice_server,
        default=[],
        metavar="URL",
        help="WebRTC: stun:HOST[:PORT] or turn:…; may be repeated",
    )
    serve.add_argument("--record", type=Path, metavar="DIR", help="keep every session as a file in this folder")
    graph = commands.add_parser("graph", help="draw the Walk Graph of a family")
    graph.add_argument("family", metavar="FAMILY")
    graph.add_argument("--format", choices=("svg", "text"), default="text")
    graph.add_argument("-o", "--output", type=Path, metavar="FILE", help="write here instead of to standard output")
    graph.add_argument("--set", action="append", default=[], metavar="FAMILY.NAME=VALUE", help="a family's setting")
    replay = commands.add_parser("replay", help="run a recorded session again, and compare")
    replay.add_argument("file", type=Path, metavar="FILE")
    replay.add_argument("--placement", type=Path, help="YAML: which rank runs what")
    replay.add_argument("--partial", action="store_true", help="run a recording that is cut off as far as it goes")
    replay.add_argument("--sound", type=Path, metavar="DIR", help="write the answers as WAV files into this folder")
    fetch = commands.add_parser("pull", help="fetch weights into the cache")
    fetch.add_argument("name", metavar="NAME", help="voice: all that the family needs")
    fetch.add_argument("--verify", action="store_true", help="hash what is present")
    return parser


def settings_of(options: argparse.Namespace) -> Settings:
    """The command line of `serve` as settings."""
    certificate, key = options.tls or (None, None)
    return Settings(
        families=tuple(options.families),
        host=options.host,
        port=options.port,
        api_keys=tuple(options.api_key),
        hosts=tuple(options.allow_host),
        origins=tuple(options.allow_origin),
        max_sessions=options.max_sessions,
        allowance=Allowance(options.key_sessions, options.key_requests, options.key_characters, options.key_seconds),
        idle_seconds=options.idle_seconds,
        session_seconds=options.session_seconds,
        drain_seconds=options.drain_seconds,
        patience=Patience(silent=options.silent_seconds, step=options.step_seconds, waiting=options.waiting_seconds),
        spare=options.warm_spare,
        strict_truncate=options.strict_truncate,
        seed=options.seed,
        certificate=certificate,
        private_key=key,
        web=options.web,
        candidates=tuple(options.candidate),
        ice_servers=tuple(options.ice_server),
        record=options.record,
    )


def family_settings(
    families: Sequence[str], pairs: Sequence[str], llm: str | None, *, tiny: bool = False
) -> dict[str, dict[str, str]]:
    """`FAMILY.NAME=VALUE` by family; `--llm` and `--tiny` go to every family that knows them.

    Raises Rejected for a pair that is none, and for what no family knows.
    """
    found: dict[str, dict[str, str]] = {name: {} for name in families}
    for pair in pairs:
        left, equals, value = pair.partition("=")
        name, dot, field = left.rpartition(".")
        if not equals or not dot or name not in found:
            raise Rejected(f"--set {pair}: expected FAMILY.NAME=VALUE of a served family", param="set")
        found[name][field] = value
    everywhere = {"llm": llm} if llm is not None else {}
    for field, value in (everywhere | {"tiny": "true"} if tiny else everywhere).items():
        knowing = [name for name in families if field in family(name).settings]
        if not knowing:
            raise Rejected(f"--{field}: not for {', '.join(families)}", param=field)
        for name in knowing:
            found[name][field] = value
    return found


def placement_for(given: Path | None, families: Sequence[str]) -> Placement:
    """The placement file given, else the one beside the first family that has one, else one rank with all cores."""
    cores = os.cpu_count() or 1
    if given is not None:
        return read_placement(given)
    for name in families:
        spec = importlib.util.find_spec(module_of(name))
        path = Path(spec.origin).with_name("placement.yaml") if spec is not None and spec.origin else None
        if path is not None and path.is_file():
            return read_placement(path)
    return one_rank(cores)


def _draw(options: argparse.Namespace) -> int:
    name: str = options.family
    drawing = drawn(name, family_settings([name], options.set, None)[name], options.format)
    if options.output is None:
        sys.stdout.write(drawing)
    else:
        options.output.write_text(drawing, encoding="utf-8")
    return 0


def _replay(options: argparse.Namespace) -> int:
    try:
        recording = read(options.file)
        if not recording.whole and not options.partial:
            raise Rejected(f"{options.file}: cut off behind {len(recording.steps)} steps; --partial runs those")
        return play(recording, placement_for(options.placement, [recording.began.family]), options.sound)
    except Rejected as why:
        print(f"mstar: {why}", file=sys.stderr)
        return 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0, 1 when something failed, 2 when it was asked for wrongly; one line on stderr says what."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "pull":
            for folder in pull(options.name, Printer(sys.stderr), verify=options.verify):
                print(folder)
            return 0
        if options.command == "graph":
            return _draw(options)
        if options.command == "replay":
            return _replay(options)
        settings = settings_of(options)
        given = family_settings(settings.families, options.set, options.llm, tiny=options.tiny)
        cards = {name: card_of(name, given[name]) for name in settings.families}
        launched = {name: {"module": module_of(name), "settings": given[name]} for name in settings.families}
        return run(settings, cards, launched, placement_for(options.placement, settings.families))
    except (Rejected, GraphError) as why:
        print(f"mstar: {why}", file=sys.stderr)
        return 2
    except (WeightsError, WorkerLost, OSError) as why:
        print(f"mstar: {why}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
