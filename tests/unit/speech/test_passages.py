"""Markup that reaches over clauses: what is in it is not said, what is around it is, wherever the text is cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.orpheus.nodes.writing import SENTENCES
from models.orpheus.prompt import spoken_form
from models.speech.clauses import Clause, ClauseRules, Clauses
from models.speech.normalise import normalise
from models.speech.passages import Place, unsaid

HIDDEN, HEARD = "xylem", "apple"
"""A word of every stretch that is not said, and one of every other."""
LONG = " ".join(["so it goes on"] * 20)
SILENT = [
    f"```python\n# {HIDDEN}, and {HIDDEN}.\nif x: {HIDDEN}\n```\n",
    f"```\n{HIDDEN}. {HIDDEN}\n\n\n{HIDDEN} {HIDDEN}\n```\n",
    f"````md\n```\n{HIDDEN}\n```\n````\n",
    f"   ```sh\n   {HIDDEN} --all; {HIDDEN}\n   ```\n",
    f"```\n{HIDDEN} = ['{HIDDEN}, {LONG}']```\n",
    f"> ```\n> {HIDDEN}, that is {HIDDEN}\n> ```\n",
    f"~~~python\n{HIDDEN}({HIDDEN}, {HIDDEN}) <b>\n{HIDDEN} ~~~ `{HIDDEN}`\n```\n~~~~~\n",
    f"> ~~~~c++\n> {HIDDEN}, and {HIDDEN}; {LONG}\n~~~\n> {HIDDEN}\n> ~~~~\n",
    f"<!-- {HIDDEN}. {HIDDEN}, {LONG}\n{HIDDEN} -->\n",
    f'<img src="{HIDDEN}.png" alt="a {HIDDEN}, of all things, and {LONG}">\n',
    f"<a href='{HIDDEN}, {LONG}' id={HIDDEN} title = \"it's {HIDDEN}. {HIDDEN}\" hidden/>\n",
]
SPOKEN = [
    f"![{HEARD}](data:image/png;base64,{'A' * 900}{HIDDEN}) {HEARD}\n",
    f"[{HEARD}][{HIDDEN}] and <https://{HEARD}.org> {HEARD}\n\n[{HIDDEN}]: https://{HIDDEN}.org/\n",
    f"All of it: {HEARD}, {HEARD}. And {HEARD}!\n",
    f"# {HEARD}\n",
    f"- {HEARD}\n  1. {HEARD}\n     * {HEARD}\n",
    f"> {HEARD}\n> > {HEARD}\n",
    f"| {HEARD} | {HEARD} |\n|---|:-:|\n| {HEARD} | {HEARD} |\n",
    f"A word, another one, [a link, with {HEARD}, and more](https://{HIDDEN}.org/{HIDDEN}?a=1,2) {HEARD}\n",
    f'See [{HEARD}. {HEARD}](/{HIDDEN}/{"a" * 300} "{HIDDEN}, or {HIDDEN}") {HEARD}\n',
    f"See https://a.org/b\n{HEARD} and {HEARD}\n",
    f"`{HEARD}, {HEARD}` and ```{HEARD}``` and {HEARD}\n",
    f"a < b, and <b>{HEARD}</b> <!-- {HIDDEN} --> {HEARD}\n",
    f"{LONG} {HEARD} {LONG}\n",
    f"~~~\n{HEARD}\n",
    f"~~~{HEARD}~~~\n{HEARD}, {HEARD}, and {HEARD}\n",
    f"`{HEARD} <laugh> <!-- {HEARD}` and ```{HEARD} <laugh> {HEARD}```\nand {HEARD}\n",
]
MENTIONS = st.builds(
    "{}{}{}".format,
    st.sampled_from(
        ["", f"Here are more {HEARD} of mine, ", "A word or two such ", f"{HEARD}. And then ", f"{LONG} {HEARD} "]
    ),
    st.sampled_from(
        [
            f"where ``` is a {HEARD} for code",
            f"where a ```sh and {HEARD}",
            f"where a ```sh, {HEARD}",
            f"where a ```. {HEARD}",
            f"where a ```.\n{HEARD}",
            f"where a ~~~ is {HEARD}",
            f"where a ~~~python, {HEARD}",
            f'where x <{HEARD} and c="x", {HEARD}',
            f"where x <{HEARD} and c = 'x'. {HEARD}",
            f"where x <{HEARD} or c == 'x', and {HEARD}",
            f"where x <{HEARD}, c='x and {HEARD}",
            "where x <y z='1'",
            f'where x <y z="1" and so on in such long words that a clause of it ends because {HEARD}, {HEARD}',
        ]
    ),
    st.sampled_from([f" in {HEARD}. More.\n", f", and {LONG}, {HEARD}\n", "\n", f" {LONG}. {HEARD}, {HEARD}.\n"]),
)
"""Marks within a line, which begin nothing, however the line is cut into clauses."""


def clauses(pieces: list[str], rules: ClauseRules | None = None) -> list[Clause]:
    state = Clauses(rules or ClauseRules())
    found: list[Clause] = []
    for piece in pieces:
        new, state = state.feed(piece)
        found += new
    return found + state.flush()[0]


def said(pieces: list[str]) -> list[str]:
    return [normalise(each.text, place=each.place).text for each in clauses(pieces)]


def written(pieces: list[str]) -> list[str]:
    return [spoken_form(each.text, each.place) for each in clauses(pieces, SENTENCES)]


TEXTS = st.lists(st.one_of(st.sampled_from(SILENT + SPOKEN), MENTIONS), max_size=6)


@given(TEXTS, st.booleans())
def test_what_is_hidden_is_not_said_and_all_else_is(parts: list[str], sentences: bool) -> None:
    spoken = " ".join((written if sentences else said)(["".join(parts)]))
    assert HIDDEN not in spoken
    assert spoken.count(HEARD) == "".join(parts).count(HEARD)


MARKS = st.sampled_from(
    [
        *("~~~", "~~~sh", "```sh", "'", "<a", " b='c'", "=", " x, "),
        "```",
        "`",
        "\n",
        "<!--",
        "-->",
        "[a",
        "](",
        ")",
        ' "t"',
        '<a b="',
        ">",
        "https://a.b/c",
        " ",
        "word",
        "- ",
        "1. ",
    ]
)


TANGLES = st.lists(MARKS, max_size=40).map("".join)


@given(st.one_of(TEXTS.map("".join), TANGLES, st.text("`~<!->\n a)](\"'=", max_size=60)), st.data())
def test_a_text_is_said_alike_wherever_it_is_cut(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in pairwise([0, *cuts, len(text)])]
    for way in (said, written):
        assert way(pieces) == way([text]) == way(list(text))


@given(st.text("`~<!->\n ab)](\"'=:/", max_size=80), st.integers(0, 80))
def test_spans_are_in_order_and_what_is_known_of_a_place_comes_from_the_text_before_it(text: str, at: int) -> None:
    spans, _ = unsaid(text, Place())
    borders = [each for span in spans for each in span]
    assert borders == sorted(borders)
    assert all(a < b <= len(text) for a, b in spans)
    _, place = unsaid(text[:at], Place())
    assert Place.of(place.value()) == place


def test_a_border_that_is_asked_for_begins_a_text_of_its_own() -> None:
    state = Clauses()
    _, state = state.feed("```\nx = 1\n")
    _, state = state.flush()
    found, _ = state.feed("This is said.\n")
    assert [normalise(each.text, place=each.place).text for each in found] == ["This is said."]


@pytest.mark.parametrize(
    ("clause", "place", "spoken"),
    [
        ("- 20 dollars", Place(line=False), "twenty dollars"),
        ("3. Then", Place(line=False), "three. Then"),
        ("3. Then", Place(), "three, Then"),
        ("b/c?d=e and on", Place(cut="address", line=False), "and on"),
        ('more.png "its title") and on', Place(cut="link", line=False), "and on"),
        ('its title") and on', Place(cut="link", line=False), "and on"),
        ("and no link at all", Place(cut="link", line=False), "and no link at all"),
        ('more" and on', Place(cut="double", line=False), "more and on"),
        ('more" id=x> and on', Place(cut="double", line=False), "and on"),
        ("it's \"more\" c='d'> and on", Place(cut="single", line=False), "it's more c equals d and on"),
        ("c='d' e/> and on", Place(cut="tag", line=False), "and on"),
        ("and no tag at all", Place(cut="tag", line=False), "and no tag at all"),
        ("``` is a mark", Place(line=False), "is a mark"),
        ("~~~sh", Place(line=False), "sh"),
        ("~~~\nand on", Place(fence="~~~"), "and on"),
        ("~~~~ 1\n~~~\nx", Place(fence="~~~~"), ""),
        ("```\n~~~\nand on", Place(fence="~~~"), "and on"),
        ("x = 1``` and on", Place(fence="```", line=False), "and on"),
    ],
)
def test_a_clause_is_said_as_what_stands_at_its_place(clause: str, place: Place, spoken: str) -> None:
    assert normalise(clause, place=place).text == spoken


def test_a_quoted_value_that_does_not_close_is_none() -> None:
    spoken = said([f'Where <b c="{" ".join([LONG] * 4)}, and {HEARD}. Then more.'])
    assert HEARD in spoken[-2]
    assert spoken[-1] == "Then more."
    assert HEARD in " ".join(said([f'Where <b c="{LONG}\n{HEARD}, {HEARD}']))
