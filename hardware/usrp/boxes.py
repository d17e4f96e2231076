"""All boxes of a lab: opened, on one reference and one time, tuned at one tick; and each of them found again."""

from collections.abc import Mapping

from hardware.lab.model import Lab
from hardware.radio.errors import HardwareError, RadioTimeoutError
from hardware.usrp.device import UsrpDevice
from hardware.usrp.settings import UsrpBox, UsrpSettings, usrp_of
from hardware.usrp.timing import (
    choose_sources,
    join_time,
    require_common_sources,
    require_locked,
    require_one_time,
    require_tuned,
    set_one_time,
    tune_now,
    tune_together,
)

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
    """devices: by the radio's name, open or failed. addresses: UHD's arguments for each. lockstep: see `UsrpRadio`."""

    def __init__(self, lab: Lab, addresses: Mapping[str, str], *, lockstep: bool = False) -> None:
        self._lab, self._addresses = lab, dict(addresses)
        self._more = _LOCKSTEP_ARGS if lockstep else ""
        self.settings: UsrpSettings = usrp_of(lab)
        self.boxes: dict[str, UsrpBox] = {radio.name: self.settings.box(radio.name) for radio in lab.radios}
        require_common_sources(self.boxes, lab.clock_mode, lab.source)
        self.devices: dict[str, UsrpDevice] = {}

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
                tune_now(self.devices[name], self._lab.ps.settings.rx_center_hz)
                require_tuned(self.devices[name])
        except BaseException:
            self.close()
            raise

    def _open(self, name: str) -> UsrpDevice:
        box = self.boxes[name]
        device = UsrpDevice(name, self._addresses[name], ",".join(filter(None, (box.device_args, self._more))))
        try:
            _end_streams(device)
            _choose_connectors(device, box)
            choose_sources(device, box)
        except BaseException:
            device.close()
            raise
        return device

    def reopen(self, name: str) -> UsrpDevice:
        """Open a box that has failed again, and give it the time of one that has not."""
        old = self.devices[name]
        if not old.answers():
            # Its connection is kept: libuhd would hand it out again for the same box.
            raise RadioTimeoutError(f"{name} at {old.address} cannot be reached any more ({old.failure}): is it on?")
        old.close()
        device = self._open(name)
        self.devices[name] = device
        others = [other for other in self.devices.values() if other is not device and other.usable]
        if others:
            join_time(device, self.boxes[name], others[0])
        elif len(self.devices) > 1:
            # All have failed: whoever is first begins a new time, and the others join it.
            device.set("time_now", device.time_at(0.0))
        return device

    def verify(self) -> None:
        """Raise `LockLostError` where a box does not follow its reference any more, or has another time than others."""
        usable = {name: device for name, device in self.devices.items() if device.usable}
        for name, device in usable.items():
            require_locked(device, self.boxes[name])
        if len(usable) > 1:
            require_one_time(usable, self.boxes)

    def close(self) -> None:
        """Let all go."""
        for device in self.devices.values():
            device.close()


def _end_streams(device: UsrpDevice) -> None:
    """A box goes on with what it was told to receive before, by whoever: opening it changes nothing about that."""
    uhd = device.uhd
    stream = device.ask(
        "opening a receive stream", lambda usrp: usrp.get_rx_stream(uhd.usrp.StreamArgs("sc16", "sc16"))
    )
    command = uhd.types.StreamCMD(uhd.types.StreamMode.stop_cont)
    device.ask("ceasing to receive", lambda _: stream.issue_stream_cmd(command))


def _choose_connectors(device: UsrpDevice, box: UsrpBox) -> None:
    """Daughterboard and antennas, read back."""
    if box.subdevice:
        spec = device.uhd.usrp.SubdevSpec(box.subdevice)
        device.set("rx_subdev_spec", spec)
        device.set("tx_subdev_spec", spec)
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
