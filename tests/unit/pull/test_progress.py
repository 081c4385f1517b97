from __future__ import annotations

import io

from models.pull import Phase, Printer, Step


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_every_ten_percent_without_a_terminal() -> None:
    stream = io.StringIO()
    printer = Printer(stream)
    for done in range(1001):
        printer(Step("ear", Phase.DOWNLOADING, done * 1024, 1000 * 1024))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 11
    assert lines[0] == "ear: downloading   0 % of 1.0 MiB"
    assert lines[-1] == "ear: downloading 100 % of 1.0 MiB"


def test_one_rewritten_line_on_a_terminal() -> None:
    stream = Terminal()
    printer = Printer(stream)
    for done in range(0, 101, 10):
        printer(Step("ear", Phase.DOWNLOADING, done, 100))
    assert "\n" not in stream.getvalue()
    assert stream.getvalue().count("\r") == 11
    printer(Step("ear", Phase.READY, 100, 100))
    assert stream.getvalue().endswith("\n")


def test_close_ends_an_unfinished_line_once() -> None:
    stream = Terminal()
    printer = Printer(stream)
    printer(Step("ear", Phase.DOWNLOADING, 1, 2))
    printer.close()
    printer.close()
    assert stream.getvalue().count("\n") == 1
