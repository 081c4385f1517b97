"""The command line becomes settings; what is wrong is said in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.registry import card_of, drawn
from mstar.errors import Rejected
from server.cli import _parser, family_settings, main, placement_for, settings_of


def test_settings() -> None:
    words = "serve toy voice --port 1 --api-key secret --allow-host h --max-sessions 3 --tls c k --seed 7"
    words += " --strict-truncate"
    settings = settings_of(_parser().parse_args(words.split()))
    assert settings.families == ("toy", "voice")
    assert (settings.port, settings.api_keys, settings.hosts, settings.max_sessions) == (1, ("secret",), ("h",), 3)
    assert (settings.certificate, settings.private_key) == (Path("c"), Path("k"))
    assert settings.strict_truncate
    assert settings.seed == 7
    assert "secret" not in repr(settings)


@pytest.mark.parametrize(
    "words",
    [
        "--port 99999",
        "--port -1",
        "--port x",
        "--max-sessions 0",
        "--max-sessions 1.5",
        "--session-seconds nan",
        "--session-seconds 0",
        "--idle-seconds -1",
        "--drain-seconds inf",
        "--key-seconds nan",
        "--key-requests -3",
        "--candidate nowhere",
        "--candidate 127.0.0.1@9-1",
        "--ice-server example.com",
        "--web /nowhere",
        "--nothing",
        "--tls one",
    ],
)
def test_what_an_option_can_not_be_is_one_line(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        _parser().parse_args(["serve", "toy", *words.split()])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert words.partition(" ")[0] in said


def test_what_options_may_be() -> None:
    words = "serve toy --port 0 --drain-seconds 0 --ice-server stun:example.com:3478 --candidate 127.0.0.1@9000-9010"
    settings = settings_of(_parser().parse_args(words.split()))
    assert (settings.port, settings.drain_seconds) == (0, 0)
    assert settings.ice_servers == ("stun:example.com:3478",)


def test_settings_of_families() -> None:
    given = family_settings(["toy", "voice"], ["voice.asr=/there"], "/some/where")
    assert given == {"toy": {}, "voice": {"asr": "/there", "llm": "/some/where"}}
    for wrong in ("voice.asr", "asr=3", "other.asr=3"):
        with pytest.raises(Rejected, match="--set"):
            family_settings(["voice"], [wrong], None)


def test_a_setting_that_a_family_does_not_have_is_refused() -> None:
    with pytest.raises(Rejected, match=r"family voice has no setting 'aer'; it has: llm, .*ear") as refused:
        card_of("voice", {"aer": "/there"})
    assert (refused.value.code, refused.value.param) == ("unknown_setting", "voice.aer")
    with pytest.raises(Rejected, match="family toy has no setting 'llm'; it has: none"):
        drawn("toy", {"llm": "/there"}, "text")
    with pytest.raises(Rejected, match="--tiny: not for toy, voice"):
        family_settings(["toy", "voice"], [], None, tiny=True)
    assert family_settings(["toy", "orpheus"], [], None, tiny=True) == {"toy": {}, "orpheus": {"tiny": "true"}}


def test_a_family_brings_its_placement() -> None:
    assert {rank.name for rank in placement_for(None, ["voice"]).ranks} == {"ear", "main", "speech"}
    assert [rank.name for rank in placement_for(None, ["toy"]).ranks] == ["main"]


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["serve", "nothing-known"], 2, "unknown family"),
        (["serve", "toy", "--placement", "/nowhere.yaml"], 2, "/nowhere.yaml"),
        (["pull", "nothing-known"], 2, "nothing-known"),
    ],
)
def test_what_is_wrong_is_one_line(
    words: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == status
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert said in lines[0]
