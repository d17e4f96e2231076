"""What a radio answers when it cannot do what it was asked: a negative error number, as the real one's kernel gives."""

import errno
import os
from typing import NoReturn

from hardware.radio.errors import HardwareError


class RefusalError(HardwareError):
    """A request that is answered with `-code`."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(f"{os.strerror(code)} ({-code}){f': {reason}' if reason else ''}")
        self.code = code


def invalid(reason: str) -> RefusalError:
    """EINVAL: a value or a request that makes no sense."""
    return RefusalError(errno.EINVAL, reason)


def refuse(code: int) -> NoReturn:
    """What an attribute does that the kernel lists and cannot read."""
    raise RefusalError(code)
