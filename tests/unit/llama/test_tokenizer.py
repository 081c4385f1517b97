from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Vocabulary

from models.llama.checkpoint import open_checkpoint
from models.llama.tokenizer import Tokenizer, read_tokenizer
from mstar.errors import WeightsError


def vocabulary() -> Vocabulary:
    """All bytes, two merges, two control tokens, one plain added token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*alphabet, "he", "hel"]
    made = Vocabulary(models.BPE({word: i for i, word in enumerate(words)}, [("h", "e"), ("he", "l")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken("<|a|>", special=True), AddedToken("<|ab|>", special=True)])
    made.add_tokens([AddedToken("[tool]", normalized=False)])
    return made


TOKENIZER = Tokenizer(vocabulary())
A, AB = TOKENIZER.id_of("<|a|>"), TOKENIZER.id_of("<|ab|>")


def test_control_tokens_are_found_and_have_no_text() -> None:
    ids = TOKENIZER.encode("<|a|>hel<|ab|>")
    assert ids == [A, TOKENIZER.id_of("hel"), AB]
    assert TOKENIZER.decode(ids) == "hel"
    assert [TOKENIZER.is_control(i) for i in ids] == [True, False, True]


def test_inert_text_holds_no_control_tokens() -> None:
    text = "<|a|> and <|ab|>"
    ids = TOKENIZER.encode("<|a|>" + TOKENIZER.inert(text))
    assert ids[0] == A
    assert not any(TOKENIZER.is_control(i) for i in ids[1:])
    assert TOKENIZER.decode(ids) == text


def test_inertness_can_not_be_undone_from_inside() -> None:
    for text in ("<\ue000|a|>", "<|\ue000a|>", "<<|a|>|a|>", "<|a<|a|>|>"):
        assert not any(TOKENIZER.is_control(i) for i in TOKENIZER.encode(TOKENIZER.inert(text)))


def test_added_plain_tokens_have_text() -> None:
    ids = TOKENIZER.encode("x[tool]y")
    assert len(ids) == 3
    assert TOKENIZER.decode(ids) == "x[tool]y"


@given(st.text(st.characters(exclude_characters="\ue000", codec="utf-8")))
def test_pieces_add_up_to_the_text_and_never_hold_half_a_character(text: str) -> None:
    ids = TOKENIZER.encode(TOKENIZER.inert(text))
    assert TOKENIZER.decode(ids) == text
    pending, parts = b"", []
    for token in ids:
        part, pending = TOKENIZER.push(pending, token)
        parts.append(part)
    assert "".join(parts) == text
    assert pending == b""


def test_bytes_that_are_no_character_are_replaced_once_that_is_certain() -> None:
    lead, other = (TOKENIZER.encode("é")[0], TOKENIZER.encode("x")[0])
    text, pending = TOKENIZER.push(b"", lead)
    assert (text, pending) == ("", b"\xc3")
    assert TOKENIZER.flush(pending) == "\ufffd"
    assert TOKENIZER.push(pending, other) == ("\ufffdx", b"")


def test_a_hub_folder_brings_its_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(WeightsError, match=r"tokenizer\.json: missing"):
        read_tokenizer(open_checkpoint(tmp_path))
    made = vocabulary()
    made.save(str(tmp_path / "tokenizer.json"))
    assert read_tokenizer(open_checkpoint(tmp_path)).encode("<|a|>hello") == TOKENIZER.encode("<|a|>hello")
    made.decoder = decoders.WordPiece()
    made.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(WeightsError, match="not ByteLevel"):
        read_tokenizer(open_checkpoint(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(WeightsError, match=r"tokenizer\.json: "):
        read_tokenizer(open_checkpoint(tmp_path))
