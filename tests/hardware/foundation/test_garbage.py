"""Collections of garbage are short in a process that has loaded all that it needs."""

import gc

from hardware.foundation.garbage import keep_what_is_loaded


def test_what_is_loaded_is_not_looked_at_again() -> None:
    gc.unfreeze()
    before = len(gc.get_objects())
    try:
        keep_what_is_loaded()
        assert gc.get_freeze_count() > 0
        assert len(gc.get_objects()) < before / 10
    finally:
        gc.unfreeze()
