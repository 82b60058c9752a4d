"""The garbage collector while apps run."""

import gc

from usechat.server.app import rare_collections


def test_apps_need_not_go_in_the_order_in_which_they_came() -> None:
    before = gc.get_threshold()
    gc.unfreeze()
    first, second = rare_collections(), rare_collections()
    first.__enter__()
    frozen = gc.get_freeze_count()
    assert gc.get_threshold() == (20_000, 10, 10)
    second.__enter__()
    first.__exit__(None, None, None)
    assert (gc.get_threshold(), gc.get_freeze_count()) == ((20_000, 10, 10), frozen)
    second.__exit__(None, None, None)
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() < frozen
