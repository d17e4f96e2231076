"""What the server can see of a client that sends with more than it announced.

A client's privacy is charged by the gain that it announces. Three things are looked at, all of them public:

*Decisions.* What a client decides follows from its sounding and the common factor. The server computes the same, and
takes no smaller gain than that.

*The payload.* All clients together arrive with at most sum p_i g_i. A sum that is louder than this and the noise, which
is measured beside it, was sent by somebody with more. Who, cannot be told; and K clients whose updates do not point the
same way leave room for a lie of about the K-fold before it is seen.

*The next sounding.* A transmitter that was turned up for the payload is still so when it sounds next. Where channels
stand still (`radio.max_gain_rise_db`), a client that is suddenly louder was, or will be, sending more than it said.
There is a next sounding after every payload, also after the last one, and a server that takes the run up knows how loud
everybody was. A client that turns its gain up and down between sounding and payload is seen in the payload alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fl.nodes.air_format import AirFormat
from fl.nodes.apart.levels import Levels
from fl.nodes.coordinator import Round
from fl.nodes.messages import Decision, Received, SoundedChannel
from fl.nodes.precoding import relative_gain_upper
from fl.uplink.power_control import control_power
from phy.errors import AirdpError

FALSE_ALARM = 1e-9
"""Probability with which an honest payload is taken for one that is too loud."""
_NOISE_SLACK = 1.05
"""Of the noise's variance over that in the margins: a jammer's may be that much stronger at some subcarriers."""
_ROUNDING = 1e-6
"""By which the same formula may differ between two machines."""


class DishonestError(AirdpError):
    """A client sends with more than it announced: nothing that it is charged for can be believed."""


@dataclass
class Honesty:
    """clients: names. weights: p_i (K,). max_rise_db: of a client from one sounding to the next, 0 where channels fade.
    levels: of the soundings before.

    Every method raises `DishonestError`; it names the client where that can be told.
    """

    clients: Sequence[str]
    air: AirFormat
    weights: NDArray[np.float64]
    clip_norm: float
    max_rise_db: float
    levels: Levels = field(default_factory=Levels)

    def planned(self, current: Round) -> None:
        """Look at a plan's soundings and decisions, before anything is authorised."""
        states = current.soundings.states[: len(self.clients)]
        self.sounded(states)
        for client, (state, decision) in enumerate(zip(states, current.decisions, strict=True)):
            self._decided(client, state, decision, current.plan.alpha_u)

    def sounded(self, states: Sequence[SoundedChannel]) -> None:
        """Look at the clients' soundings; whoever goes on after a stop compares the next ones with these."""
        if not self.max_rise_db:
            return
        now_db = {name: _level_db(state) for name, state in zip(self.clients, states, strict=True)}
        rises_db = {name: level_db - self.levels.before_db(name) for name, level_db in now_db.items()}
        self.levels.keep(now_db)
        for name, rise_db in rises_db.items():
            if rise_db > self.max_rise_db:
                raise DishonestError(
                    f"'{name}' sounds {rise_db:.1f} dB louder than in the sounding before, more than "
                    f"radio.max_gain_rise_db = {self.max_rise_db:g}: it may have sent its last update with more "
                    "than the gain that it was charged for; see to its radio's gain, or raise the limit where channels "
                    "change"
                )

    def _decided(self, client: int, state: SoundedChannel, decision: Decision, alpha_u: float) -> None:
        power = control_power(
            alpha_u=alpha_u,
            weight=float(self.weights[client]),
            gain=complex(state.weakest_gain),
            clip_norm=self.clip_norm,
            limit=self.air.energy_limit,
        )
        # Its circuits may add to this; nothing takes away from it.
        least = relative_gain_upper(state, self.air) / power.backoff
        louder = decision.backoff > power.backoff * (1.0 + _ROUNDING)
        if louder or decision.gain_upper < least * (1.0 - _ROUNDING):
            raise DishonestError(
                f"'{self.clients[client]}' announces a gain of {decision.gain_upper:.6g} with a back-off of "
                f"{decision.backoff:.6g}; from its sounding follow at least {least:.6g} and {power.backoff:.6g}: "
                "update its airdp, or leave it out"
            )

    def received(self, current: Round, received: Received) -> None:
        """Look at a payload. Its cells are divided by alpha_u."""
        loudest = sum(
            float(self.weights[client]) * current.mechanism.received_gains[client] for client in current.plan.senders
        )
        noise = received.guards if received.margins is None else received.margins
        noise_var_real = _NOISE_SLACK * noise.ci[1] / current.plan.alpha_u**2
        energy = float(np.vdot(received.cells, received.cells).real)
        dimensions = 2 * received.cells.size
        most = noise_var_real * float(stats.ncx2.isf(FALSE_ALARM, dimensions, loudest**2 / noise_var_real))
        if energy > most:
            raise DishonestError(
                f"uplink {current.plan.uplink} arrived with an energy of {energy:.4g}, and all clients together may "
                f"have sent {most:.4g}, noise included: one of them sends with more than the gain that it announced. "
                "Its own privacy is not what the ledger says; that of the others is. See to the gains of the radios"
            )


def _level_db(state: SoundedChannel) -> float:
    power = float(np.mean(np.abs(state.channel) ** 2))
    return 10.0 * math.log10(power) if power > 0.0 else -math.inf
