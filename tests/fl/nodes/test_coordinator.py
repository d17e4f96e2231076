"""What the coordinator says and hears: public by construction, in the order of an uplink, and its jammer's own word."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from calibration.noise import measure_noise
from fl.errors import ConfigError
from fl.nodes.air_format import AirFormat
from fl.nodes.coordinator import Round
from fl.nodes.link import InProcessLink
from fl.nodes.messages import Check, JammingDecision, JammingOrder, Message, Receive, Received, Withdraw
from fl.nodes.radio_uplink import RadioUplink
from fl.privacy.converters import kappa
from fl.privacy.mechanism import RoundMechanism, SigmaOrigin
from fl.privacy.sensitivity import Label, Neighbours
from fl.uplink.contract import NotSentError
from fl.uplink.jammer import JammerRole
from hardware.radio.errors import HardwareError
from phy.dither import Dither
from phy.fading import circular_noise
from tests.fl.nodes.radios import NUMEROLOGY, SIZES, SYMBOL, lab_of, nothing, opened, power_of, sent_by, updates_of

SHORT: dict[str, Any] = {"quiet_samples": 8192, "sounding_symbols": 8}


@contextmanager
def listened(uplink: RadioUplink) -> Iterator[list[tuple[str, Message[Any], Any]]]:
    """Everything that passes the link: node, message, answer."""
    said: list[tuple[str, Message[Any], Any]] = []
    link: Any = uplink.coordinator.link
    ask = link.ask

    def watched(node: str, message: Message[Any]) -> Any:
        answer = ask(node, message)
        said.append((node, message, answer))
        return answer

    link.ask = watched
    yield said
    link.ask = ask


def plain(value: Any) -> Any:
    """A value that can be compared, whatever arrays it has inside."""
    if isinstance(value, np.ndarray):
        return (value.shape, value.tobytes())
    if is_dataclass(value) and not isinstance(value, type):
        return (type(value).__name__, *(plain(getattr(value, field.name)) for field in fields(value)))
    if isinstance(value, tuple | list):
        return tuple(plain(part) for part in value)
    return value


@pytest.mark.parametrize("role", [JammerRole.DEDICATED, JammerRole.ROTATING])
def test_nothing_that_is_said_depends_on_an_update(role: JammerRole) -> None:
    """Two runs of the same uplink with other updates, one of them clipping: all messages and answers are the same bits,
    but for what the server received. Backs off by the worst case, so that nothing is known of the norms either."""
    talks = []
    for seed, length in ((5, 1.0), (6, 0.1)):
        power = power_of(alpha_u=300.0, jammer_role=role, jammer_sigma=1e-3, max_phase_error_rad=3.0)
        with opened(lab_of(fading="rayleigh"), 1000, power=power, payload_rms=0.5, **SHORT) as uplink:
            with listened(uplink) as said:
                plan = uplink.plan(1)
                uplink.exchange(plan, sent_by(plan, updates_of(1000, seed=seed, length=length)), nothing)
            talks.append(said)
    first, second = talks
    assert len(first) == len(second)
    received = 0
    for (node, message, answer), (other_node, other_message, other_answer) in zip(first, second, strict=True):
        assert (node, plain(message)) == (other_node, plain(other_message))
        if isinstance(answer, Received):
            received += 1
            assert plain(answer) != plain(other_answer)
        else:
            assert plain(answer) == plain(other_answer)
    assert received == 1


def test_an_uplink_is_said_in_order() -> None:
    power = power_of(jammer_role=JammerRole.DEDICATED, jammer_sigma=0.02)
    with opened(lab_of(), 1000, power=power, **SHORT) as uplink:
        clients, jammer = list(uplink.cast.clients), "jammer"
        with listened(uplink) as said:
            plan = uplink.plan(1)
            uplink.exchange(plan, sent_by(plan, updates_of(1000)), nothing)
    steps = [(type(message).__name__, node) for node, message, _ in said]
    assert steps == [
        ("MeasureSilence", "ps"),
        *(("Sound", name) for name in [*clients, jammer]),
        ("HearSoundings", "ps"),
        *(("Check", name) for name in [*clients, jammer]),
        *(("DescribeCircuits", name) for name in [*clients, jammer]),
        *(("Announcement", name) for name in clients),
        ("JammingOrder", jammer),
        ("Transmit", jammer),
        *(("Transmit", name) for name in clients),
        ("Receive", "ps"),
        ("Check", jammer),
        *(("Check", name) for name in clients),
    ]


@pytest.mark.parametrize("role", [JammerRole.DEDICATED, JammerRole.ROTATING])
@pytest.mark.parametrize("error", [HardwareError("late"), KeyboardInterrupt()])
def test_every_client_withdraws_on_its_own_and_the_jammer_does_not(
    role: JammerRole, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """The server fails; the first client does not answer. Whoever jams is asked nothing that would end its burst."""
    power = power_of(jammer_role=role, jammer_sigma=0.02)
    with opened(lab_of(), 1000, power=power, **SHORT) as uplink:
        plan = uplink.plan(2)
        link: Any = uplink.coordinator.link
        ask, said = link.ask, list[tuple[str, str]]()

        def failing(node: str, message: Message[Any]) -> Any:
            said.append((type(message).__name__, node))
            if isinstance(message, Receive):
                raise error
            if isinstance(message, Withdraw) and node == "client-1":
                raise HardwareError("client-1 does not answer")
            return ask(node, message)

        link.ask = failing
        with pytest.raises(type(error)):
            uplink.exchange(plan, sent_by(plan, updates_of(1000)), nothing)
        assert uplink.lab.leaving is not None
        jammer = uplink.lab.leaving.jamming
    assert jammer == ("jammer" if role is JammerRole.DEDICATED else "client-2")
    clients = [name for name in uplink.cast.clients if name != jammer]
    after = said[said.index(("Receive", "ps")) + 1 :]
    checked = [("Check", jammer)] if isinstance(error, HardwareError) else []
    assert after == [*(("Withdraw", name) for name in clients), *checked]
    assert "'client-1' has not confirmed that it sends nothing more: client-1 does not answer" in caplog.text


def test_ctrl_c_is_not_swallowed_by_a_jammer_that_fails() -> None:
    """An error of a radio would be tried again."""
    power = power_of(jammer_role=JammerRole.DEDICATED, jammer_sigma=0.02)
    with opened(lab_of(), 1000, power=power, **SHORT) as uplink:
        plan = uplink.plan(1)
        link: Any = uplink.coordinator.link
        ask = link.ask

        def failing(node: str, message: Message[Any]) -> Any:
            if isinstance(message, Receive):
                raise KeyboardInterrupt
            if isinstance(message, Check):
                raise HardwareError(f"{node} does not answer")
            return ask(node, message)

        link.ask = failing
        with pytest.raises(KeyboardInterrupt):
            uplink.exchange(plan, sent_by(plan, updates_of(1000)), nothing)


def test_what_the_jammer_decides_is_what_is_charged() -> None:
    """A jammer that will send less than it was asked for says so, and no more is counted on."""
    power = power_of(jammer_role=JammerRole.DEDICATED, jammer_sigma=0.02)
    with opened(lab_of(), 1000, power=power, **SHORT) as uplink:
        whole = uplink.plan(1).mechanism
    with opened(lab_of(), 1000, power=power, **SHORT) as uplink:
        link: Any = uplink.coordinator.link
        ask = link.ask

        def weaker(node: str, message: Message[Any]) -> Any:
            answer = ask(node, message)
            if isinstance(message, JammingOrder):
                return JammingDecision(answer.alpha / 2, answer.gain_lower)
            return answer

        link.ask = weaker
        half = uplink.plan(1).mechanism
    assert half.alpha_cj == pytest.approx(whole.alpha_cj / 2)
    jammed = (whole.alpha_cj * whole.jammer_gain) ** 2 / whole.alpha_u**2
    assert whole.sigma**2 - half.sigma**2 == pytest.approx(0.75 * jammed, rel=1e-9)


def test_noise_that_nobody_asked_the_jammer_for_is_not_counted_on() -> None:
    power = power_of(jammer_role=JammerRole.DEDICATED, jammer_sigma=0.02)
    with opened(lab_of(), 1000, power=power, **SHORT) as uplink:
        link: Any = uplink.coordinator.link
        ask = link.ask

        def boasting(node: str, message: Message[Any]) -> Any:
            answer = ask(node, message)
            if isinstance(message, JammingOrder):
                return JammingDecision(10 * answer.alpha, answer.gain_lower)
            return answer

        link.ask = boasting
        with pytest.raises(HardwareError, match="'jammer' announces noise of"):
            uplink.plan(1)


def test_a_node_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="there is no node 'client-9': there are a, b"):
        InProcessLink({"a": object(), "b": object()}).ask("client-9", Message())  # type: ignore[dict-item]


def mechanism_of(sigma: float, jammer_gain: float, noise_std_real: float) -> RoundMechanism:
    """Of one client with the weight 1, and a jammer."""
    return RoundMechanism(
        uplink=1,
        received_gains=(1.0,),
        sigma=sigma,
        sigma_origin=SigmaOrigin.MEASURED,
        record_bounded=False,
        clip_norm=1.0,
        alpha_u=1.0,
        alpha_cj=1.0,
        jammer_gain=jammer_gain,
        noise_std_real=noise_std_real,
    )


@pytest.mark.parametrize("there", [1.0, 0.1])
def test_a_receiver_that_is_quieter_in_a_part_of_its_band_beside_the_payload(there: float) -> None:
    """12 subcarriers of the 30 blocks that guards have, by a tenth of the power there was in the silence."""
    rng = np.random.default_rng(2)
    silence = measure_noise(circular_noise(2**19, 1e-5, rng), NUMEROLOGY, 0.999)
    samples = circular_noise(30 * NUMEROLOGY.fft_size, 1e-5, rng)
    f = np.fft.fftfreq(samples.size) * NUMEROLOGY.fft_size
    quieter = np.fft.ifft(np.fft.fft(samples) * np.where(np.abs(f - 40.0) < 6.0, there**0.5, 1.0))
    guards = measure_noise(quieter.astype(np.complex64), NUMEROLOGY, 0.999)
    planned = replace(mechanism_of(0.9 * 1e-5**0.5, 0.0, 0.9 * 1e-5**0.5), alpha_cj=0.0)
    received: Any = SimpleNamespace(guards=guards)
    with opened(lab_of(), SYMBOL) as uplink:
        sounded = uplink.coordinator.plan(1, 0)
        planned = replace(planned, received_gains=sounded.mechanism.received_gains)
        soundings = replace(sounded.soundings, noise=silence)
        current = replace(sounded, plan=replace(sounded.plan, mechanism=planned), soundings=soundings)
        accounted = uplink.coordinator.account(current, received)
    if there == 1.0:
        assert accounted == planned
        return
    # Below the truth: a bound, from 60 values a subcarrier.
    assert 0.2 * there < accounted.sigma**2 / 1e-5 < there
    assert accounted.noise_std_real == pytest.approx(accounted.sigma)
    assert [name for name, _ in accounted.bounds or ()] == ["noise beside the payload"]


@pytest.mark.parametrize(("heard", "counted"), [(1.0, 1.0), (0.9, 0.9)])
def test_what_the_receivers_converter_adds_beside_a_payload_does_not_count(heard: float, counted: float) -> None:
    """Margins have 0.9 of the planned noise, and rounding makes up for what is missing: 10 % of it, as where the noise
    is 0.9 steps. What is heard is what there is, plus that."""
    step, planned = 1e-3, 10.0 * (1e-3) ** 2 / 12.0
    rounding = step**2 / 12.0
    air = AirFormat(NUMEROLOGY, SYMBOL)
    rng = np.random.default_rng(1)

    def noise(var_real: float) -> Any:
        return replace(measure_noise(circular_noise(2**19, var_real, rng), NUMEROLOGY, 0.999), converter_step=step)

    mechanism = mechanism_of(planned**0.5, 0.5 * planned**0.5, (0.75 * planned) ** 0.5)
    quiet = noise(0.75 * planned + rounding)
    empty = np.full(8, heard * planned + rounding)
    received: Any = SimpleNamespace(
        guards=quiet, margins=noise(heard * planned + rounding), empty_var_real=empty, empty_cells=60
    )
    current: Any = SimpleNamespace(mechanism=mechanism, soundings=SimpleNamespace(noise=quiet), jammer="jammer")
    with opened(lab_of(), air.coordinates) as uplink:
        accounted = uplink.coordinator.account(current, received)
    assert accounted.alpha_cj == 1.0
    if counted == 1.0:
        assert accounted == mechanism
    else:
        assert accounted.sigma**2 / planned == pytest.approx(counted, abs=0.01)


def fallen(planned: Round, var_ratio: float) -> Any:
    """What is received where the receiver has so much of its noise beside the payload, and a jammer is whole."""
    own_var_real = planned.soundings.noise.noise_var_real
    sum_var_real = (planned.mechanism.sigma * planned.plan.alpha_u) ** 2
    rng = np.random.default_rng(1)

    def heard(var_real: float) -> Any:
        return measure_noise(circular_noise(30 * NUMEROLOGY.fft_size, var_real, rng), NUMEROLOGY, 0.999)

    empty = np.full(8, 2.0 * sum_var_real)
    guards, margins = heard(var_ratio * own_var_real), heard(1.2 * sum_var_real)
    return SimpleNamespace(guards=guards, margins=margins, empty_var_real=empty, empty_cells=60)


@pytest.mark.parametrize(("var_ratio", "known"), [(1.0, True), (0.1, True), (0.01, False)])
def test_rounding_is_charged_in_the_noise_that_is_left(var_ratio: float, known: bool) -> None:
    """A step of 12 bits arrives as a quarter of the noise that was planned for, as most of a tenth of its power, and as
    more than twice a hundredth of it, for which there is no bound. A channel of gain 1 is charged with kappa itself."""
    with opened(lab_of(dac_bits=12), SYMBOL, **SHORT) as uplink:
        planned = uplink.coordinator.plan(1, 0)
        done = uplink.coordinator.account(planned, fallen(planned, var_ratio))
    assert (done.sigma_origin is SigmaOrigin.MEASURED) == known
    if not known:
        assert np.isinf(done.noise_ratios(SIZES, Label.CLIENT, Neighbours.ZERO_OUT)).all()
        return
    step = 1.0 / 2047.0
    before, after = (kappa(Dither.SMOOTH, step / left.noise_std_real) for left in (planned.mechanism, done))
    assert (after > 10.0 * before) == (var_ratio < 1.0)
    risen = np.array(done.received_gains) - np.array(planned.mechanism.received_gains)
    assert risen == pytest.approx(after - before, rel=0.2)


@pytest.mark.parametrize(("var_ratio", "counted"), [(1.0, True), (0.1, False)])
def test_a_jammer_that_is_a_grid_in_the_noise_that_is_left_is_none(var_ratio: float, counted: bool) -> None:
    """A step of 1/255 arrives as a third of the noise that was planned for, and as all that is left."""
    power = power_of(jammer_role=JammerRole.DEDICATED, jammer_sigma=0.04)
    lab = lab_of(noise_var_complex=5e-4, radio={"jammer": {"dac_bits": 9}})
    with opened(lab, SYMBOL, power=power, **SHORT) as uplink:
        planned = uplink.coordinator.plan(1, 0)
        assert planned.plan.jammer.needed
        done = uplink.coordinator.account(planned, fallen(planned, var_ratio))
    assert (done.alpha_cj > 0.0) == counted
    if not counted:
        assert done.sigma == pytest.approx(done.noise_std_real / done.alpha_u)


def test_soundings_that_were_given_up_may_have_failed_too() -> None:
    """What was measured decides which plan is sent: a third attempt is charged with the bounds of three."""
    with opened(lab_of(), 1000, **SHORT) as uplink:
        once, thrice = (dict(uplink.plan(1, attempt).mechanism.bounds or ()) for attempt in (0, 2))
    assert once["client gains"] == pytest.approx(5 * (1 - uplink.air.confidence))
    assert thrice == {name: pytest.approx(3 * failure) for name, failure in once.items()}


@pytest.mark.parametrize(("bits", "sent"), [(8, False), (14, True)])
def test_a_jammer_whose_noise_would_arrive_on_a_coarse_grid_is_none(bits: int, sent: bool) -> None:
    """A step of 1/127 arrives as 8 times the receiver's noise of 1e-3, one of 1/8191 as an eighth of it."""
    power = power_of(jammer_role=JammerRole.DEDICATED, jammer_sigma=0.02)
    lab = lab_of(noise_var_complex=2e-6, radio={"jammer": {"dac_bits": bits}})
    with opened(lab, 1000, power=power, **SHORT) as uplink:
        if sent:
            assert uplink.plan(1).jammer.needed
            return
        with pytest.raises(NotSentError, match="a grid with gaps"):
            uplink.plan(1)
