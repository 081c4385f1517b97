from __future__ import annotations

import pytest

from mstar.errors import Rejected
from server.robot.fragment import MOST, Fragment, read_fragment

WHOLE = """a=ice-ufrag:EsAw
a=ice-pwd:P2uYro0UCOQ4zxjKXaWCBui1
m=video 9 UDP/TLS/RTP/SAVPF 0
a=mid:1
a=candidate:1387637174 1 udp 2122260223 192.0.2.1 61764 typ host generation 0 ufrag EsAw network-id 1
a=candidate:3471623853 1 tcp 1518280447 192.0.2.1 9 typ host tcptype active
a=candidate:473322822 1 UDP 2122260223 0b1c.local 60278 typ host
a=end-of-candidates
"""


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_candidates_that_can_be_used_are_read_with_their_section(ending: str) -> None:
    found = read_fragment(WHOLE.replace("\n", ending))
    usable = "1387637174 1 udp 2122260223 192.0.2.1 61764 typ host generation 0 ufrag EsAw network-id 1"
    assert found == Fragment("EsAw", (("1", usable),))


def test_nothing_is_read_of_nothing() -> None:
    assert read_fragment("") == Fragment("", ())
    assert read_fragment("a=candidate:1 1 udp\n") == Fragment("", ())


@pytest.mark.parametrize("text", ["what", "x", "a=mid:0\n" * (MOST + 1)])
def test_what_is_no_fragment_is_refused(text: str) -> None:
    with pytest.raises(Rejected):
        read_fragment(text)
