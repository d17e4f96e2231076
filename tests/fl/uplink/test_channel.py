"""Where gains come from, and the random streams that they and all noise are drawn from."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from calibration.gains import GainsFileError, GainsTable, load_gains
from fl.errors import ConfigError
from fl.random_streams import Stream, generator
from fl.uplink.channel import FileChannel, RayleighChannel, StaticChannel

TABLE = GainsTable(
    np.array([[1 + 1j, 2], [3, 4j], [5, 6]], np.complex128), np.array([7, 8j, 9], np.complex128), "table.npz"
)


def draws(*address: int, seed: int = 1, stream: Stream = Stream.NOISE, count: int = 1000) -> NDArray[np.float64]:
    return generator(seed, stream, *address).standard_normal(count)


def test_a_stream_depends_on_its_address_alone() -> None:
    generator(1, Stream.NOISE, 4).standard_normal(17)
    np.testing.assert_array_equal(draws(4, 2), draws(4, 2))


@settings(deadline=None)
@given(st.integers(0, 2**63 - 1), st.lists(st.integers(0, 2**31), max_size=3))
def test_streams_repeat_for_any_seed_and_numbers(seed: int, numbers: list[int]) -> None:
    first = generator(seed, Stream.LOCAL, *numbers).random(3)
    np.testing.assert_array_equal(first, generator(seed, Stream.LOCAL, *numbers).random(3))


def test_no_two_addresses_share_a_draw() -> None:
    """Seeds, purposes, uplinks, clients, swapped numbers, a number more: all different, all uncorrelated."""
    streams = [
        draws(),
        draws(0),
        draws(1),
        draws(2),
        draws(1, 0),
        draws(0, 1),
        draws(1, 1),
        draws(1, 2),
        draws(2, 1),
        draws(1, 1, 0),
        draws(1, seed=2),
        *(draws(1, stream=stream) for stream in Stream if stream is not Stream.NOISE),
    ]
    for i, one in enumerate(streams):
        for other in streams[i + 1 :]:
            assert not np.any(one == other)
            # 4.5 sd of the correlation of 1000 independent draws, over some hundred pairs.
            assert abs(np.corrcoef(one, other)[0, 1]) < 4.5 / np.sqrt(1000)


def test_purposes_keep_their_numbers() -> None:
    """They are part of every address: renumbering would change what a seed means."""
    assert {stream.name: stream.value for stream in Stream} == {
        "DATA": 0,
        "PARTITION": 1,
        "MODEL": 2,
        "LOCAL": 3,
        "CHANNEL": 4,
        "NOISE": 5,
        "JAMMER": 6,
        "BOUND": 7,
        "AUDIT": 8,
        "DITHER": 9,
    }


def test_rayleigh_gains_are_unit_power_with_the_jammers_scaled() -> None:
    """2 |h|^2 / g^2 is chi-square with 2 degrees for h ~ CN(0, g^2); a jammer 3 % louder is rejected."""
    channel = RayleighChannel(clients=4, jammer_amplitude=2.0)
    states = [channel.state(m, generator(1, Stream.CHANNEL, m)) for m in range(1, 10_001)]
    clients = np.array([state.clients for state in states])
    jammer = np.array([state.jammer for state in states])
    assert clients.shape == (10_000, 4)
    for gains, amplitude in ((clients.ravel(), 1.0), (jammer, 2.0)):
        power = 2 * np.sum(np.abs(gains) ** 2) / amplitude**2
        degrees = 2 * gains.size
        assert 1e-3 < stats.chi2.cdf(power, degrees) < 1 - 1e-3
        assert stats.chi2.sf(power, degrees) > 1e-3 > stats.chi2.cdf(power / 1.06**2, degrees)
    correlation = np.corrcoef(np.abs(np.column_stack([clients, jammer])).T)
    assert np.max(np.abs(correlation - np.eye(5))) < 4.5 / np.sqrt(10_000)


def test_rayleigh_gains_repeat_for_an_uplink_and_change_with_it() -> None:
    channel = RayleighChannel(3)
    one, same, other = (channel.state(m, generator(1, Stream.CHANNEL, m)) for m in (1, 1, 2))
    np.testing.assert_array_equal(one.clients, same.clients)
    assert one.jammer == same.jammer
    assert not np.any(one.clients == other.clients)


def test_static_gains() -> None:
    state = StaticChannel(3, gain=0.5, jammer_amplitude=0.25).state(7, generator(1, Stream.CHANNEL, 7))
    np.testing.assert_array_equal(state.clients, np.full(3, 0.5 + 0j))
    assert state.clients.dtype == np.complex128
    assert state.jammer == 0.25


def test_a_file_has_a_row_for_each_uplink() -> None:
    channel = FileChannel(TABLE, clients=2, uplinks=3, jammer_needed=True)
    rng = generator(1, Stream.CHANNEL, 1)
    for uplink in (1, 2, 3, 1):
        state = channel.state(uplink, rng)
        np.testing.assert_array_equal(state.clients, TABLE.client_gains[uplink - 1])
        assert TABLE.jammer_gains is not None
        assert state.jammer == TABLE.jammer_gains[uplink - 1]


def test_a_file_with_one_row_is_a_static_channel(tmp_path: Path) -> None:
    path = tmp_path / "gains.csv"
    path.write_text("uplink,transmitter,re,im\n1,0,1,2\n1,1,3,4\n")
    channel = FileChannel(load_gains(path), clients=2, uplinks=80, jammer_needed=False)
    for uplink in (1, 80):
        state = channel.state(uplink, generator(1, Stream.CHANNEL, uplink))
        np.testing.assert_array_equal(state.clients, [1 + 2j, 3 + 4j])
        assert state.jammer == 0


def test_a_file_that_does_not_fit_the_run_is_refused_before_it_starts() -> None:
    with pytest.raises(GainsFileError, match="2 clients: the run has 3"):
        FileChannel(TABLE, clients=3, uplinks=3, jammer_needed=False)
    with pytest.raises(GainsFileError, match=r"3 uplinks.*needs 4"):
        FileChannel(TABLE, clients=2, uplinks=4, jammer_needed=False)
    without = GainsTable(TABLE.client_gains, None, "table.npz")
    with pytest.raises(ConfigError, match="no gains of the jammer"):
        FileChannel(without, clients=2, uplinks=3, jammer_needed=True)
    FileChannel(without, clients=2, uplinks=2, jammer_needed=False)
