"""The module `uhd`, and what it must know before it is imported."""

import os
from typing import Any

from hardware.radio.errors import HardwareError

INSTALL = "sudo apt-get install python3-uhd uhd-host"


def library() -> Any:
    """The module `uhd`, or `HardwareError` with the command that installs it.

    What libuhd prints by itself (single letters for late and lost packets, notes on buffers) is errors here, with
    names: it stays quiet unless the environment says otherwise.
    """
    os.environ.setdefault("UHD_LOG_FASTPATH_DISABLE", "1")
    os.environ.setdefault("UHD_LOG_CONSOLE_LEVEL", "fatal")
    try:
        import uhd
    except ImportError as error:
        raise HardwareError(f"a USRP needs UHD's Python module ({error}): {INSTALL}") from error
    return uhd
