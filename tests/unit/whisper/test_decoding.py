"""Rules of decoding: every transcript ends."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.whisper.config import Ids
from models.whisper.decoding import Progress, Rules, believed, without_echo, without_loop

IDS = Ids(
    start=51,
    end=50,
    no_stamps=52,
    first_stamp=53,
    no_speech=51,
    suppress=(3, 51),
    begin_suppress=(7, 50),
    max_first_stamp=5,
)
VOCAB = 53 + 101  # 2 s of times
CPU = torch.device("cpu")


def allowed(progress: Progress, likely: int | None = None) -> set[int]:
    logits = torch.zeros(1, VOCAB)
    if likely is not None:
        logits[0, likely] = 100.0  # likelier than all times together
    row = Rules(IDS, VOCAB, CPU).apply(logits, [progress])[0]
    return set(torch.isfinite(row).nonzero()[:, 0].tolist())


def stamp(seconds: float) -> int:
    return IDS.first_stamp + round(seconds / 0.02)


def after(*tokens: int, seconds: float = 2.0) -> Progress:
    progress = Progress(seconds)
    for token in tokens:
        progress = progress.take(token, IDS)
    return progress


def test_it_begins_with_an_early_time() -> None:
    assert allowed(after()) == set(range(53, 59))


def test_text_follows_an_opening_time() -> None:
    assert max(allowed(after(stamp(0)))) < 53
    assert not allowed(after(stamp(0))) & {3, 51, 52}


def test_a_closing_time_is_followed_by_its_like_or_the_end() -> None:
    assert allowed(after(stamp(0), 1, stamp(0.5)), likely=50) == {50, *range(stamp(0.5), VOCAB)}


def test_times_do_not_go_back() -> None:
    times = {token for token in allowed(after(stamp(0), 1, stamp(0.5), stamp(0.5), 1), likely=2) if token >= 53}
    assert times == set(range(stamp(0.52), VOCAB))


def test_a_time_is_taken_when_all_times_together_are_likelier() -> None:
    assert min(allowed(after(stamp(0), 1))) >= 53
    assert min(allowed(after(stamp(0), 1), likely=2)) == 0


def test_without_times_only_the_lists_count() -> None:
    everything = set(range(VOCAB)) - {3, 51}
    assert allowed(Progress(stamps=False)) == everything - {7, 50}
    assert allowed(Progress(stamps=False).take(1, IDS)) == everything


def test_a_row_is_judged_by_its_own_progress() -> None:
    rules, logits = Rules(IDS, VOCAB, CPU), torch.randn(3, VOCAB, generator=torch.Generator().manual_seed(0))
    progress = [after(), after(stamp(0), 1), Progress(stamps=False)]
    together = rules.apply(logits, progress)
    for number, own in enumerate(progress):
        assert torch.equal(together[number], rules.apply(logits[number : number + 1], [own])[0])


def test_a_closing_time_at_the_end_of_the_audio_ends_it() -> None:
    assert after(stamp(0), 1, stamp(1.7)).ended(IDS)
    assert not after(stamp(0), 1, stamp(1.4)).ended(IDS)
    assert not after(stamp(0), 1, stamp(1.7), stamp(1.7)).ended(IDS)
    assert after(stamp(0), 1, IDS.end).ended(IDS)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.0, 30.0), st.booleans())
def test_greedy_decoding_of_anything_ends(seed: int, seconds: float, stamps: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    rules, progress = Rules(IDS, VOCAB, CPU), Progress(seconds, stamps, room=200)
    while not progress.ended(IDS):
        row = rules.apply(torch.randn(1, VOCAB, generator=generator), [progress])[0]
        assert torch.isfinite(row.max())
        progress = Progress.of(progress.take(int(row.argmax()), IDS).value())
    assert progress.count <= min(200, 12 + 12 * seconds)


def test_nobody_speaks_when_the_token_for_it_is_likely() -> None:
    logits = torch.zeros(2, VOCAB)
    logits[0, IDS.no_speech] = 20.0
    assert Rules(IDS, VOCAB, CPU).silent(logits) == [True, False]


def test_a_transcript_that_ran_away_says_everything_once() -> None:
    limit = believed(1.0)
    assert without_loop(([7, 8] + [1, 2, 3] * limit)[:limit], 1.0) == [7, 8, 1, 2, 3]
    assert without_loop([5] * limit, 1.0) == [5]
    assert without_loop([1, 2] * limit, 1.0) == [1, 2]
    assert without_loop([1, 2, 3] * (limit // 3) + [1, 1, 2], 1.0) == [1, 2, 3]


def test_a_transcript_that_ended_by_itself_keeps_what_it_repeats() -> None:
    said = [4] * (believed(1.0) - 1)
    assert without_loop(said, 1.0) == said


def test_long_text_without_a_loop_is_kept() -> None:
    said = [*range(believed(1.0) - 4), 1, 2, 1, 2]
    assert without_loop(said, 1.0) == said


STAMP = 100


def test_what_was_heard_twice_in_the_time_of_once_is_said_once() -> None:
    sentence = [*range(10, 20)]
    assert without_echo([100, *sentence, 150, 150, *sentence, 240], 2.8, STAMP) == [100, *sentence, 240]
    assert without_echo([100, *sentence, 150, 150, *sentence[:6], 240], 2.0, STAMP) == [100, *sentence, 240]
    assert without_echo([100, 5, *sentence, *sentence, *sentence[:8], 240], 3.0, STAMP) == [100, 5, *sentence, 240]


def test_what_is_said_twice_in_its_time_is_kept() -> None:
    sentence = [100, *range(10, 20), 200, 200, *range(10, 20), 300]
    assert without_echo(sentence, 4.0, STAMP) == sentence
    no = [100, 1, 2, 1, 2, 1, 2, 140]
    assert without_echo(no, 0.8, STAMP) == no
