from __future__ import annotations

import pytest

from media.rtp_time import NTP_EPOCH, Offset, RtpClock, unix_of


def ntp(unix: float) -> int:
    return round((unix + NTP_EPOCH) * 2**32)


def test_a_report_ties_timestamps_to_the_wall_clock_also_where_they_wrap() -> None:
    clock = RtpClock(90_000)
    assert clock.wall(5) is None
    clock.reported(0, 5)  # of a sender that has sent nothing
    assert clock.wall(5) is None
    clock.reported(ntp(1.7e9), 2**32 - 90_000)
    assert clock.wall(2**32 - 90_000) == pytest.approx(1.7e9, abs=1e-6)
    assert clock.wall(0) == pytest.approx(1.7e9 + 1, abs=1e-6)
    assert clock.wall(2**32 - 135_000) == pytest.approx(1.7e9 - 0.5, abs=1e-6)
    assert unix_of(ntp(1.7e9)) == pytest.approx(1.7e9, abs=1e-6)


def test_the_quickest_arrival_bounds_a_foreign_clock() -> None:
    offset = Offset()
    assert offset.ours(1.0) is None
    for stamp, transit in ((1.0, 0.08), (2.0, 0.01), (3.0, 0.05)):
        offset.arrived(stamp, stamp - 100 + transit)
    assert offset.ours(3.0) == pytest.approx(-97 + 0.01)
