"""Garbage collection while a gateway starts."""

import gc

from shortlist.cli.pauses import no_collection


def test_collection_is_off_during_a_start_and_on_again_after_it() -> None:
    assert gc.isenabled()
    with no_collection():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_collection_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with no_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
