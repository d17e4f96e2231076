"""The uplink over the server's own radio, with nodes that have joined."""

from collections.abc import Iterator
from contextlib import contextmanager

from fl.errors import ConfigError
from fl.learning.settings import LocalMode
from fl.nodes.apart.uplink import ApartUplink
from fl.nodes.calibrated import CalibrationCheck
from fl.run.apart.attendance import Attendance
from fl.run.assemble import Onlooker, OpenUplink, air_format, radio_rules, transmitters_of
from fl.run.config import RunConfig
from fl.uplink.contract import Uplink
from hardware.lab.opened import open_radio


def make_apart_uplink(
    config: RunConfig, attendance: Attendance, calibration: CalibrationCheck | None, coordinates: int
) -> OpenUplink:
    """The uplink over the server's own radio; nodes that have joined are part of it."""
    lab, sizes = attendance.lab, attendance.sizes
    if coordinates != attendance.coordinates:
        raise ConfigError(
            f"the server's model has {coordinates} coordinates, that of the clients {attendance.coordinates}: their "
            "data must have the same features"
        )
    air = air_format(config, lab, coordinates)
    if calibration is not None:
        air = calibration.applied_to(air, transmitters_of(lab, config.jammer.role))

    @contextmanager
    def opened(onlooker: Onlooker) -> Iterator[Uplink]:
        with open_radio(lab, lab.ps.name) as radios:
            onlooker.tap(radios)
            uplink = ApartUplink(
                radios,
                air,
                sizes,
                config.privacy.clip_norm,
                radio_rules(config, sizes),
                attendance.switchboard,
                record_bounded=config.local.mode is LocalMode.RECORD,
                check_noise=(lambda noise: None) if calibration is None else calibration.check_silence,
            )
            onlooker.attach(uplink)
            try:
                yield uplink
            finally:
                uplink.leave()

    return opened
