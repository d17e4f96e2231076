"""All boxes of a lab: opened, on one reference and one time, tuned at one tick; and each of them found again."""

import logging
import math
from collections.abc import Callable, Mapping

from hardware.lab.clock import ClockMode
from hardware.lab.model import Lab
from hardware.radio.errors import HardwareError, RadioTimeoutError
from hardware.usrp.device import UsrpDevice
from hardware.usrp.settings import UsrpBox, UsrpSettings, usrp_of
from hardware.usrp.timing import (
    DRIFT_S,
    choose_sources,
    join_time,
    now_s,
    require_common_sources,
    require_locked,
    require_one_time,
    require_tuned,
    set_one_time,
    tune,
    tune_together,
    with_another_time,
)

_LOG = logging.getLogger("airdp")
TUNING_LEAD_S = 0.05
"""From telling a box to tune to the tick at which it does."""
LOCKSTEP_BUFFER_BYTES = 1 << 17
"""Of the host's sockets, where time stands still once they are full: so far it goes on while nobody receives."""
_LOCKSTEP_FRAME_BYTES = 8000
_LOCKSTEP_ARGS = ",".join(
    (
        f"recv_buff_size={LOCKSTEP_BUFFER_BYTES}",
        # Loopback carries them, and each costs as much as a small one.
        f"recv_frame_size={_LOCKSTEP_FRAME_BYTES}",
        f"send_frame_size={_LOCKSTEP_FRAME_BYTES}",
    )
)


class Boxes:
    """devices: by the radio's name, open or failed. addresses: UHD's arguments for each. lockstep: see `UsrpRadio`.

    gone: see `UsrpDevice`, for all of them.
    """

    def __init__(
        self, lab: Lab, addresses: Mapping[str, str], *, lockstep: bool = False, gone: Callable[[], str] = str
    ) -> None:
        self._lab, self._addresses, self._gone = lab, dict(addresses), gone
        self._more = _LOCKSTEP_ARGS if lockstep else ""
        self.settings: UsrpSettings = usrp_of(lab)
        self.boxes: dict[str, UsrpBox] = {radio.name: self.settings.box(radio.name) for radio in lab.radios}
        require_common_sources(self.boxes, lab.clock_mode, lab.source)
        self.devices: dict[str, UsrpDevice] = {}
        self._bare: set[str] = set()
        self._seen_s: dict[str, float] = {}

    def open(self) -> None:
        """Open all, set clocks and time, and tune them together; what was opened is closed again where that fails."""
        try:
            for name in self._addresses:
                self.devices[name] = self._open(name)
            set_one_time(self.devices, self.boxes)
            tune_together(self.devices, self._lab.ps.settings.rx_center_hz, TUNING_LEAD_S)
            for device in self.devices.values():
                require_tuned(device)
        except BaseException:
            self.close()
            raise

    def open_alone(self) -> None:
        """Open boxes whose others belong to other processes: their time stays as it is, and each is tuned at once."""
        try:
            for name in self._addresses:
                self.devices[name] = self._open(name)
                center_hz = self._lab.ps.settings.rx_center_hz
                tune(self.devices[name], center_hz, center_hz)
                require_tuned(self.devices[name])
        except BaseException:
            self.close()
            raise

    def _open(self, name: str) -> UsrpDevice:
        device = self._connect(name)
        try:
            _choose_connectors(device, self.boxes[name])
            choose_sources(device, self.boxes[name])
        except BaseException:
            device.close()
            raise
        return device

    def _connect(self, name: str) -> UsrpDevice:
        more = ",".join(filter(None, (self.boxes[name].device_args, self._more)))
        device = UsrpDevice(name, self._addresses[name], more, self._gone)
        try:
            _end_streams(device)
        except BaseException:
            device.close()
            raise
        return device

    def ready(self, name: str) -> bool:
        """Whether a box is open, has not failed, and has the reference and the time of the lab."""
        return self.devices[name].usable and name not in self._bare

    def reconnect(self, name: str) -> None:
        """Reach a box that has failed again, to silence it: it need not have a reference or a time for that."""
        old = self.devices[name]
        if not old.answers():
            # Its connection is kept: libuhd would hand it out again for the same box.
            raise RadioTimeoutError(f"{name} at {old.address} cannot be reached any more ({old.failure}): is it on?")
        old.close()
        self._bare.add(name)
        self._seen_s.pop(name, None)
        self.devices[name] = self._connect(name)

    def reopen(self, name: str) -> None:
        """Open a box that has failed again, as `open` does, and give it the time of those that have not."""
        if not self.devices[name].usable:
            self.reconnect(name)
        device, box = self.devices[name], self.boxes[name]
        _choose_connectors(device, box)
        choose_sources(device, box)
        if len(self.devices) > 1:
            others = {other: self.devices[other] for other in self.devices if self.ready(other)}
            join_time(name, others | {name: device}, self.boxes, self._apart_s)
        self._bare.discard(name)

    def give_up_restarted(self) -> None:
        """Give up boxes whose time has gone back or is another one, so that they are opened again.

        They were switched off and on again. With the time they have lost all settings, of which libuhd knows nothing.
        """
        found = {name: self.devices[name] for name in self.devices if self.ready(name)}
        try:
            restarted = with_another_time(found, self.boxes, self._apart_s)
            for name, device in found.items():
                seen_s, self._seen_s[name] = self._seen_s.get(name, -math.inf), now_s(device)
                if self._seen_s[name] < seen_s:
                    restarted.append(name)
        except RadioTimeoutError as error:
            # Whoever did not answer is given up already.
            _LOG.info("%s", error)
            return
        for name in restarted:
            found[name].fail("it has lost its time: it was switched off and on again")

    @property
    def _apart_s(self) -> float:
        """How far apart the times of boxes may be."""
        return 0.0 if self._lab.clock_mode is ClockMode.SHARED else DRIFT_S

    def verify(self) -> None:
        """Raise `LockLostError` where a box does not follow its reference any more, or has another time than others."""
        found = {name: device for name, device in self.devices.items() if self.ready(name)}
        for name, device in found.items():
            require_locked(device, self.boxes[name])
        if len(found) > 1:
            require_one_time(found, self.boxes, self._apart_s)

    def close(self) -> None:
        """Let all go."""
        for device in self.devices.values():
            device.close()


def _end_streams(device: UsrpDevice) -> None:
    """A box goes on with what it was told before, by whoever: opening it changes nothing about that.

    A new transmit stream empties the queue of bursts.
    """
    uhd = device.uhd
    arguments = uhd.usrp.StreamArgs("sc16", "sc16")
    device.ask("opening a transmit stream", lambda usrp: usrp.get_tx_stream(arguments))
    stream = device.ask("opening a receive stream", lambda usrp: usrp.get_rx_stream(arguments))
    command = uhd.types.StreamCMD(uhd.types.StreamMode.stop_cont)
    device.ask("ceasing to receive", lambda _: stream.issue_stream_cmd(command))


def _choose_connectors(device: UsrpDevice, box: UsrpBox) -> None:
    """Daughterboard and antennas, read back."""
    if box.subdevice:
        spec = device.ask("naming its subdevice", lambda _: device.uhd.usrp.SubdevSpec(box.subdevice))
        for direction in ("rx", "tx"):
            device.set(f"{direction}_subdev_spec", spec)
            got = device.get(f"{direction}_subdev_spec").to_string()
            if got != spec.to_string():
                raise HardwareError(
                    f"{device.name}: its {direction} subdevice was set to {spec.to_string()} and reads back as {got}"
                )
    for direction, wanted in (("rx", box.antenna), ("tx", box.tx_antenna)):
        if not wanted:
            continue
        known = [str(name) for name in device.get(f"{direction}_antennas")]
        if wanted not in known:
            raise HardwareError(f"{device.name} has no {direction} antenna '{wanted}': expected {', '.join(known)}")
        device.set(f"{direction}_antenna", wanted)
        got = str(device.get(f"{direction}_antenna"))
        if got != wanted:
            raise HardwareError(f"{device.name}: its {direction} antenna was set to {wanted} and reads back as {got}")
