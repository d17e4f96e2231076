"""The registers of a device behind its debug attribute `direct_reg_access`.

Writing "ADDRESS" chooses a register, reading then gives its value; writing "ADDRESS VALUE" sets it. Addresses with the
highest bit set are those of the FPGA core. Its status register tells of lost samples, in bits that stay until written.
"""

import re

from hardware.virtual.iiod.attributes import Attribute
from hardware.virtual.iiod.refusal import invalid

STATUS = 0x80000088
CORE_VERSION = 0x80000000
"""Of a core: major, minor and patch letter."""
RX_CORE = 0x000A0062
"""axi_ad9361, 10.0.b."""
TX_CORE = 0x00090162
"""Its transmit side, 9.1.b, as in a Pluto's dump."""
PRODUCT_ID = 0x037
AD9361_REVISION_2 = 0x0A
"""What the kernel's driver looks for: product 1 in bits 7 to 3, revision 2 in bits 2 to 0."""
UNDERFLOW = 1 << 0
OVERFLOW = 1 << 2
_NUMBER = r"(0[xX][0-9a-fA-F]{1,8}|\d{1,10})"
_ACCESS = re.compile(rf"\s*{_NUMBER}(?:\s+{_NUMBER})?\s*")
# Offsets that a core or the chip has.
_LARGEST_OFFSET = 0xFFFF


class Registers:
    """32-bit registers; all are zero until written, except those given."""

    def __init__(self, values: dict[int, int] | None = None) -> None:
        self._values = dict(values or {})
        self._address = 0

    def attribute(self) -> Attribute:
        """The debug attribute."""
        return Attribute("direct_reg_access", self.value, self.access)

    def access(self, value: str) -> None:
        """What writing to the attribute does."""
        match = _ACCESS.fullmatch(value)
        if match is None:
            raise invalid(f"{value!r} is not an address, or an address and a value")
        address = int(match[1], 0)
        if address & 0x7FFFFFFF > _LARGEST_OFFSET or address > 0xFFFFFFFF:
            raise invalid(f"there is no register {address:#x}")
        self._address = address
        if match[2] is None:
            return
        number = int(match[2], 0)
        if number > 0xFFFFFFFF:
            raise invalid(f"{number:#x} does not fit into 32 bits")
        self._values[address] = self._values.get(address, 0) & ~number if address == STATUS else number

    def value(self) -> str:
        """What reading the attribute gives."""
        return f"0x{self._values.get(self._address, 0):X}"

    def raise_status(self, bits: int) -> None:
        """Set bits of the status register."""
        self._values[STATUS] = self._values.get(STATUS, 0) | bits
