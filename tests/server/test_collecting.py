"""The garbage collector while apps run."""

import gc

from usechat.server.collecting import rare_collections


def test_apps_need_not_go_in_the_order_in_which_they_came() -> None:
    before = gc.get_threshold()
    first, second = rare_collections(), rare_collections()
    first.__enter__()
    assert (gc.get_threshold(), gc.get_freeze_count() > 0) == ((20_000, 10, 10), True)
    second.__enter__()
    first.__exit__(None, None, None)
    assert (gc.get_threshold(), gc.get_freeze_count() > 0) == ((20_000, 10, 10), True)
    second.__exit__(None, None, None)
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)
