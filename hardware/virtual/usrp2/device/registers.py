"""The register map of an N2xx as its FPGA image of compatibility 11 has it. Numbers are indices of 32-bit words.

Settings are written at `SETTINGS_BASE` + 4 * index and read back, where they can be, at `READBACK_BASE` + 4 * index.
"""

READBACK_BASE = 0x5C00
SETTINGS_BASE = 0x7000
SETTINGS = 256

USER_ADDRESS = 8
USER_VALUE = 9
TIME_HIGH = 10
TIME_LOW = 11
TIME_FLAGS = 12
TIME_AT_ONCE = 13
TIME_MIMO = 15
SPI_CONTROL = 21
SPI_DATA = 22
RX_CONTROL = (32, 80)
RX_DSP = (48, 96)
TX_CONTROL = 144
TX_DSP = 160
GPIO = 184

# Relative to RX_CONTROL.
STREAM_COMMAND, STREAM_TIME_HIGH, STREAM_TIME_LOW, STREAM_CLEAR = 0, 1, 2, 3
STREAM_SID, STREAM_PACKET_SAMPLES, STREAM_FORMAT = 5, 7, 9
# Relative to RX_DSP and TX_DSP.
DSP_FREQUENCY, DSP_SCALE, DSP_RATE = 0, 1, 2
# Relative to TX_CONTROL.
TX_CLEAR, TX_SID, TX_POLICY, TX_CYCLES_PER_UPDATE, TX_PACKETS_PER_UPDATE = 1, 2, 3, 4, 5
# Relative to GPIO: what the pins are while the radio does nothing, receives, transmits, does both; and directions.
ATR_IDLE, ATR_RX, ATR_TX, ATR_BOTH, GPIO_DIRECTION = 0, 1, 2, 3, 4

READ_SPI = 0
READ_STATUS = 8
READ_GPIO = 9
READ_TIME_HIGH = 10
READ_TIME_LOW = 11
READ_COMPATIBILITY = 12
READ_LOCKS = 13
READ_PPS_HIGH = 14
READ_PPS_LOW = 15

COMPATIBILITY = 11 << 16
MIMO_FOLLOWS = 1 << 8
"""In TIME_MIMO."""
REFERENCE_LOCKED = 1 << 11
MIMO_LOCKED = 1 << 10

TICKS_PER_S = 100_000_000
"""Of the sample clock."""


def dsp_factor(word: int) -> int:
    """Ticks per sample of a rate register: two half-band filters and a CIC; 1 where nothing was written yet."""
    return max(word & 0xFF, 1) * (2 if word & 0x100 else 1) * (2 if word & 0x200 else 1)


def dsp_offset_hz(word: int) -> float:
    """Frequency of a mixer's register, signed."""
    return (word - (1 << 32) if word & 0x80000000 else word) / 2.0**32 * TICKS_PER_S
