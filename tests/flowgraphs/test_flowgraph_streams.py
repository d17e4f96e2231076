"""The graphs run, and what comes out is what went in, changed as their parameters say."""

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.flowgraphs.streams import Running, Streams, decode, has_variance
from tests.gnuradio_needed import needs_gnuradio

pytestmark = needs_gnuradio

# What `air` holds back (see its note): sample k comes out once k + 8 has come in, and the first 3 of a stream are lost.
HELD, LOST = 8, 3
# Noise and oscillators are drawn ahead, as far as a buffer reaches: a new value is heard that much later.
AHEAD = 65_536


def some_signal(count: int, seed: int = 1) -> NDArray[np.complex64]:
    rng = np.random.default_rng(seed)
    return (0.1 * (rng.standard_normal(count) + 1j * rng.standard_normal(count))).astype(np.complex64)


def largest_error(got: NDArray[np.complex64], expected: NDArray[np.complex128]) -> float:
    return float(np.max(np.abs(got - expected)))


def test_a_client_sends_what_it_is_given_with_its_gain_and_tags(streams: Streams) -> None:
    signal = some_signal(50_000)
    with Running(
        "client_tx", samples_in=streams.address("in"), samples_out=streams.address("out"), tx_gain_db=-6.0
    ) as client:
        feed, tap = streams.feed("in"), streams.tap("out")
        feed.send(signal[:20_000], tags=[(123, "burst_start", 123)])
        feed.send(signal[20_000:], tags=[(40_000, "burst_start", 40_000)])
        got = tap.take(50_000)
        assert largest_error(got, signal * 10 ** (-6 / 20)) < 1e-7
        # The same comparison tells a tenth of a decibel.
        assert largest_error(got, signal * 10 ** (-6.1 / 20)) > 1e-3
        assert tap.tags == [(123, "burst_start", 123), (40_000, "burst_start", 40_000)]

        client.set(tx_gain_db=-20.0)
        assert client.get("tx_gain_db") == -20.0
        feed.send(signal)
        assert largest_error(tap.take(50_000), signal * 0.1) < 1e-7


def test_the_server_receives_with_its_gain_and_the_monitor_sees_the_same(streams: Streams) -> None:
    signal = some_signal(4096)
    with Running(
        "ps_rx",
        samples_in=streams.address("in"),
        samples_out=streams.address("out"),
        monitor_out=streams.address("monitor"),
        rx_gain_db=20.0,
    ) as receiver:
        feed, tap, monitor = streams.feed("in"), streams.tap("out"), streams.subscriber("monitor")
        # A subscription takes its time, and what is published before it is nobody's.
        while not monitor.poll(50):
            feed.send(np.zeros(64))
        start = feed.sent
        assert not tap.take(start).any()
        feed.send(signal)
        assert largest_error(tap.take(4096), 10.0 * signal) < 1e-6
        seen = np.zeros(0, np.complex64)
        while len(seen) < 4096:
            assert monitor.poll(10_000)
            offset, _, samples = decode(monitor.recv())
            seen = np.concatenate([seen, samples[max(0, start - offset) :]])
        assert largest_error(seen, 10.0 * signal) < 1e-6

        receiver.set(rx_gain_db=0.0)
        feed.send(signal)
        assert largest_error(tap.take(4096), signal) < 1e-7


def test_a_monitor_that_takes_nothing_does_not_hold_the_receiver_up(streams: Streams) -> None:
    with Running(
        "ps_rx",
        samples_in=streams.address("in"),
        samples_out=streams.address("out"),
        monitor_out=streams.address("monitor"),
    ):
        feed, tap, monitor = streams.feed("in"), streams.tap("out"), streams.subscriber("monitor")
        while not monitor.poll(50):
            feed.send(np.zeros(64))
        tap.take(feed.sent)
        for _ in range(100):
            feed.send(some_signal(32_768))
            tap.take(32_768)


def test_the_air_delays_filters_rotates_scales_and_adds(streams: Streams) -> None:
    rate_hz, count, delay, taps, cfo_hz = 1e6, 20_000, 17, np.array([1.0, 0.2j, -0.1]), 1234.5
    inputs = {f"samples_in_{number}": streams.address(f"in{number}") for number in (1, 2, 3)}
    with Running(
        "air",
        transmitters=3,
        **inputs,
        samples_out=streams.address("out"),
        sample_rate_hz=rate_hz,
        delay_samples_1=delay,
        taps_2="1, 0.2j, -0.1",
        cfo_hz_3=cfo_hz,
        gain_db_3=-6.0,
    ):
        feeds, tap = [streams.feed(f"in{number}") for number in (1, 2, 3)], streams.tap("out")
        signals = [some_signal(count, seed) for seed in (1, 2, 3)]
        for feed, signal in zip(feeds, signals, strict=True):
            feed.send(signal, tags=[(1000, "burst_start", 1000)])
        got = tap.take(count - HELD)
        place = np.arange(count)
        parts = [
            np.concatenate([np.zeros(delay), signals[0]])[:count],
            np.convolve(signals[1], taps)[:count],
            10 ** (-6 / 20) * signals[2] * np.exp(2j * np.pi * cfo_hz / rate_hz * place),
        ]
        known = slice(LOST + len(taps) + delay, count - HELD)
        # GNU Radio's oscillator is a table with interpolation, good to 1e-5.
        assert largest_error(got[known], sum(parts)[known]) < 2e-5
        # What the comparison must not let pass: one sample later, another tap, 1 % of frequency, no second transmitter.
        wrong = [
            np.roll(parts[0], 1) + parts[1] + parts[2],
            parts[0] + np.convolve(signals[1], taps * [1, 1.05, 1])[:count] + parts[2],
            parts[0] + parts[1] + parts[2] * np.exp(2j * np.pi * 0.01 * cfo_hz / rate_hz * place),
            parts[0] + parts[2],
        ]
        for other in wrong:
            assert largest_error(got[known], other[known]) > 1e-3
        # A tag stays with its sample.
        assert sorted(tap.tags) == [(1000, "burst_start", 1000)] * 2 + [(1000 + delay, "burst_start", 1000)]


def sound(samples: NDArray[np.complex64]) -> NDArray[np.intp]:
    return np.nonzero(np.abs(samples) > 1e-6)[0]


def test_every_parameter_of_the_air_changes_while_it_runs_and_sample_k_stays_sample_k(streams: Streams) -> None:
    block = 8192
    with Running(
        "air",
        transmitters=1,
        samples_in_1=streams.address("in"),
        samples_out=streams.address("out"),
        sample_rate_hz=1e6,
    ) as air:
        feed, tap = streams.feed("in"), streams.tap("out")

        def response() -> NDArray[np.complex64]:
            """What comes out from the place on where an impulse went in."""
            # The samples that are on their way when a parameter changes belong to neither of its values.
            feed.send(np.zeros(block))
            at = feed.sent + 100
            feed.send(np.eye(1, 2 * block, 100)[0])
            feed.send(np.zeros(HELD))
            got = tap.take(feed.sent - HELD - tap.taken)
            return got[at - tap.taken :]

        got = response()
        assert sound(got).tolist() == [0]
        air.set(gain_db_1=-20.0)
        got = response()
        assert got[0] == pytest.approx(0.1, abs=1e-6)
        air.set(gain_db_1=0.0, taps_1="0.5, 0, 0, 0, 0.25j")
        got = response()
        assert sound(got).tolist() == [0, 4]
        assert got[[0, 4]] == pytest.approx(np.array([0.5, 0.25j]), abs=1e-6)
        air.set(taps_1="1", delay_samples_1=1000)
        got = response()
        assert sound(got).tolist() == [1000]
        air.set(delay_samples_1=3)
        got = response()
        assert sound(got).tolist() == [3]

        air.set(delay_samples_1=0, cfo_hz_1=5000.0)
        feed.send(np.ones(AHEAD + block))
        got = tap.take(feed.sent - HELD - tap.taken)[-block // 2 :]
        turned = np.angle(got[1:] * got[:-1].conj())
        assert turned == pytest.approx(2 * np.pi * 5000 / 1e6, abs=1e-3)
        assert [air.get(name) for name in ("gain_db_1", "taps_1", "delay_samples_1", "cfo_hz_1")] == [
            0.0,
            "1",
            0,
            5000.0,
        ]


def test_the_receiver_has_the_noise_that_it_is_told_to_have(streams: Streams) -> None:
    count = 200_000
    with Running(
        "air",
        transmitters=1,
        samples_in_1=streams.address("in"),
        samples_out=streams.address("out"),
        noise_var_complex=0.01,
        noise_seed=7,
    ) as air:
        feed, tap = streams.feed("in"), streams.tap("out")
        feed.send(np.zeros(count + HELD))
        noise = tap.take(count)
        assert has_variance(noise, 0.01)
        assert not has_variance(noise, 0.0103)
        assert not has_variance(noise, 0.0097)
        # Nor is it drawn from a pool: no value comes twice.
        assert len(np.unique(noise)) == count
        air.set(noise_var_complex=0.04)
        feed.send(np.zeros(AHEAD))
        tap.take(AHEAD)
        feed.send(np.zeros(count))
        noise = tap.take(count)
        assert has_variance(noise, 0.04)
        assert not has_variance(noise, 0.0412)


def test_the_jammers_own_noise_has_the_deviation_that_it_is_told_to_have(streams: Streams) -> None:
    count = 200_000
    with Running(
        "jammer_tx", choices={"noise": "gnuradio"}, samples_out=streams.address("out"), noise_std=0.2, tx_gain_db=-6.0
    ):
        noise = streams.tap("out").take(count)
    sent = 0.2**2 * 10 ** (-6 / 10)
    assert has_variance(noise, sent)
    assert not has_variance(noise, 1.03 * sent)
    assert not has_variance(noise, 0.5 * sent)


def test_the_jammer_sends_the_hosts_noise_as_it_is(streams: Streams) -> None:
    noise = some_signal(10_000)
    with Running("jammer_tx", samples_in=streams.address("in"), samples_out=streams.address("out")):
        feed, tap = streams.feed("in"), streams.tap("out")
        feed.send(noise)
        assert np.array_equal(tap.take(10_000), noise)


def test_clients_air_and_server_make_a_link(streams: Streams) -> None:
    address = streams.address
    with (
        Running("client_tx", samples_in=address("a"), samples_out=address("b"), tx_gain_db=-3.0),
        Running("jammer_tx", samples_in=address("c"), samples_out=address("d")),
        Running("air", transmitters=2, samples_in_1=address("b"), samples_in_2=address("d"), samples_out=address("e")),
        Running("ps_rx", samples_in=address("e"), samples_out=address("f"), monitor_out=address("g"), rx_gain_db=3.0),
    ):
        client, jammer, server = streams.feed("a"), streams.feed("c"), streams.tap("f")
        update, noise = some_signal(30_000, 1), some_signal(30_000, 2)
        client.send(update)
        jammer.send(noise)
        got = server.take(30_000 - HELD)
        expected = update + 10 ** (3 / 20) * noise
        assert largest_error(got[LOST:], expected[LOST : len(got)]) < 1e-6
