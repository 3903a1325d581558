"""Numbers and times as people read them."""

import pytest

from shortlist.catalog.naming import shown_name
from shortlist.web.templating import ago, milliseconds, moment, percent, segment, short


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (0, "0"),
        (7, "7"),
        (0.974, "0.97"),
        (9_500, "9,500"),
        (12_345, "12.3k"),
        (754_321, "754k"),
        (49_700_000, "49.7M"),
    ],
)
def test_a_number_is_written_short(number: float, written: str) -> None:
    assert short(number) == written


@pytest.mark.parametrize(
    ("number", "written"), [(None, "–"), (0.001, "< 0.1 ms"), (1.25, "1.2 ms"), (84.2, "84 ms"), (2_500, "2.5 s")]
)
def test_a_time_is_written_in_its_unit(number: float | None, written: str) -> None:
    assert milliseconds(number) == written


def test_a_share_is_written_as_percent() -> None:
    assert [percent(share) for share in (None, 0.0, 1.0, 0.5, 0.123)] == ["–", "0%", "100%", "50.0%", "12.3%"]


@pytest.mark.parametrize(
    ("passed", "written"),
    [(-5, "just now"), (3, "just now"), (42, "42 s ago"), (600, "10 min ago"), (200_000, "2 d ago")],
)
def test_a_moment_is_so_long_ago(passed: float, written: str) -> None:
    assert ago(1_000_000 - passed, now=1_000_000) == written


def test_a_moment_is_written_for_machines_too() -> None:
    assert moment(0) == "1970-01-01T00:00:00Z"
    assert ago(None) == "never"


def test_a_name_becomes_one_part_of_a_path() -> None:
    assert segment("a/b?c#d e") == "a%2Fb%3Fc%23d%20e"


def test_a_tool_is_named_as_clients_see_it() -> None:
    assert shown_name("dns/records.create") == "dns__records_create"
    assert shown_name("no-such-tool") == "no-such-tool"
