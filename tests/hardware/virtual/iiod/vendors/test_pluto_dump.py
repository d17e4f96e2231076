"""A virtual Pluto beside what a real one says of itself.

The lists are those of `iio_info` of a Pluto Rev.B (Z7010-AD9364, firmware v0.30), as somebody has published it, and
the values those of the same dump that do not depend on how that board was set when it was asked.
"""

import errno
import xml.etree.ElementTree as ET
from collections.abc import Iterator

import pytest

from tests.hardware.virtual.iiod.raw_client import PHY, RX, TX, RawClient, bench

LO = "external fastlock_load fastlock_recall fastlock_save fastlock_store frequency frequency_available powerdown"
SHARED_IN = (
    "bb_dc_offset_tracking_en filter_fir_en gain_control_mode_available quadrature_tracking_en rf_bandwidth "
    "rf_bandwidth_available rf_dc_offset_tracking_en rf_port_select_available sampling_frequency "
    "sampling_frequency_available"
)
SHARED_OUT = (
    "filter_fir_en rf_bandwidth rf_bandwidth_available rf_port_select_available sampling_frequency "
    "sampling_frequency_available"
)
TONE = "frequency phase raw sampling_frequency scale"
STREAM = "calibphase calibscale sampling_frequency sampling_frequency_available"
CHANNELS = {
    "adm1177": {"in current0": "raw scale", "in voltage0": "raw scale"},
    PHY: {
        "out altvoltage0 RX_LO": LO,
        "out altvoltage1 TX_LO": LO,
        "in out": "voltage_filter_fir_en",
        "in temp0": "input",
        "out voltage0": f"{SHARED_OUT} hardwaregain hardwaregain_available rf_port_select rssi",
        "in voltage0": f"{SHARED_IN} gain_control_mode hardwaregain hardwaregain_available rf_port_select rssi",
        "out voltage2": f"{SHARED_OUT} raw scale",
        "in voltage2": f"{SHARED_IN} offset raw scale",
        "out voltage3": f"{SHARED_OUT} raw scale",
    },
    "xadc": {
        "in temp0": "offset raw scale",
        **{
            f"in voltage{number} {name}".strip(): "raw scale"
            for number, name in enumerate(
                ["vccint", "vccaux", "vccbram", "vccpint", "vccpaux", "vccoddr", "vrefp", "vrefn", ""]
            )
        },
    },
    TX: {
        "out voltage0": STREAM,
        "out voltage1": STREAM,
        **{f"out altvoltage{number} TX1_{name}": TONE for number, name in enumerate(["I_F1", "I_F2", "Q_F1", "Q_F2"])},
    },
    RX: {"in voltage0": f"{STREAM} calibbias samples_pps", "in voltage1": f"{STREAM} calibbias samples_pps"},
}
PHY_ATTRIBUTES = (
    "calib_mode calib_mode_available dcxo_tune_coarse dcxo_tune_coarse_available dcxo_tune_fine "
    "dcxo_tune_fine_available ensm_mode ensm_mode_available filter_fir_config multichip_sync rssi_gain_step_error "
    "rx_path_rates trx_rate_governor trx_rate_governor_available tx_path_rates xo_correction xo_correction_available"
)
ATTRIBUTES = {
    "adm1177": {},
    PHY: {"attribute": PHY_ATTRIBUTES, "debug-attribute": "bist_tone bist_prbs loopback direct_reg_access"},
    "xadc": {"attribute": "sampling_frequency"},
    TX: {"buffer-attribute": "data_available length_align_bytes watermark", "debug-attribute": "direct_reg_access"},
    RX: {
        "buffer-attribute": "data_available length_align_bytes watermark",
        "debug-attribute": "pseudorandom_err_check direct_reg_access",
    },
}
LEFT_OUT = {
    "gain_table_config": "the table in the chip's registers; its gains are there, the registers are not",
    **dict.fromkeys(["digital_tune", "calibration_switch_control", "bist_timing_analysis"], "calibrations of the bus"),
    **dict.fromkeys(["gaininfo_rx1", "gaininfo_rx2"], "words of that table"),
    **dict.fromkeys(["initialize", "DEBUG multichip_sync"], "the chip is never set up anew"),
}
"""Of the dump, and not here, with the reason."""
DEVICE_TREE_PROPERTIES = 168
VALUES = {
    f"{PHY} OUTPUT altvoltage0 frequency_available": "[70000000 1 6000000000]",
    f"{PHY} OUTPUT altvoltage1 frequency_available": "[46875001 1 6000000000]",
    f"{PHY} OUTPUT altvoltage0 fastlock_store": "0",
    f"{PHY} OUTPUT voltage0 hardwaregain_available": "[-89.750000 0.250000 0.000000]",
    f"{PHY} OUTPUT voltage0 rf_bandwidth_available": "[200000 1 40000000]",
    f"{PHY} OUTPUT voltage0 rf_port_select_available": "A B",
    f"{PHY} OUTPUT voltage0 rssi": "0.00 dB",
    f"{PHY} OUTPUT voltage2 raw": "306",
    f"{PHY} INPUT voltage2 offset": "57",
    f"{PHY} INPUT voltage2 scale": "0.305250",
    f"{PHY} INPUT voltage0 gain_control_mode_available": "manual fast_attack slow_attack hybrid",
    f"{PHY} INPUT voltage0 rf_bandwidth_available": "[200000 1 56000000]",
    f"{PHY} INPUT voltage0 rf_port_select_available": (
        "A_BALANCED B_BALANCED C_BALANCED A_N A_P B_N B_P C_N C_P TX_MONITOR1 TX_MONITOR2 TX_MONITOR1_2"
    ),
    f"{PHY} calib_mode_available": "auto manual manual_tx_quad tx_quad rf_dc_offs rssi_gain_step",
    f"{PHY} ensm_mode_available": "sleep wait alert fdd pinctrl pinctrl_fdd_indep",
    f"{PHY} rssi_gain_step_error": (
        "lna_error: 0 0 0 0\nmixer_error: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\ngain_step_calib_reg_val: 0 0 0 0 0"
    ),
    f"{PHY} trx_rate_governor_available": "nominal highest_osr",
    f"{PHY} xo_correction_available": "[39992000 1 40008000]",
    f"{PHY} DEBUG adi,agc-gain-update-interval-us": "1000",
    f"{PHY} DEBUG adi,2rx-2tx-mode-enable": "0",
    f"{PHY} DEBUG adi,tx-attenuation-mdB": "10000",
    "xadc INPUT temp0 scale": "123.040771484",
    "xadc INPUT vccaux raw": "2464",
    "xadc sampling_frequency": "961538",
    "adm1177 INPUT current0 scale": "0.516601562",
    f"{RX} BUFFER length_align_bytes": "8",
    f"{RX} DEBUG pseudorandom_err_check": "CH0 : PN9 : Out of Sync : PN Error\nCH1 : PN9 : Out of Sync : PN Error",
}
BOOT_PATHS = (
    "BBPLL:983040000 ADC:245760000 R2:122880000 R1:61440000 RF:30720000 RXSAMP:30720000",
    "BBPLL:983040000 DAC:122880000 T2:122880000 T1:61440000 TF:30720000 TXSAMP:30720000",
)
"""As another board's dump has them before any rate was set, and the device tree."""
PATHS_WITH_FILTERS = (
    "BBPLL:983040000 ADC:61440000 R2:30720000 R1:15360000 RF:7680000 RXSAMP:1920000",
    "BBPLL:983040000 DAC:61440000 T2:30720000 T1:15360000 TF:7680000 TXSAMP:1920000",
)
"""At 1.92 MS/s with 128 taps that decimate and interpolate by four."""


@pytest.fixture(scope="module")
def client() -> Iterator[RawClient]:
    """A radio as it has booted."""
    with bench(tuned=False) as running:
        yield running.connect("ps")


@pytest.fixture(scope="module")
def context(client: RawClient) -> ET.Element:
    text = client.take(client.command("PRINT") + 1)
    return ET.fromstring(text)  # noqa: S314 - it comes from ourselves


def names(element: ET.Element, tag: str) -> set[str]:
    return {str(node.get("name")) for node in element.findall(tag)}


def spelled(channel: ET.Element) -> str:
    direction = str(channel.get("type")).removesuffix("put")
    return f"{direction} {channel.get('id')} {channel.get('name', '')}".strip()


def test_it_has_the_devices_and_channels_of_a_real_one(context: ET.Element) -> None:
    assert [device.get("name") for device in context.iter("device")] == list(CHANNELS)
    for device in context.iter("device"):
        found = {spelled(channel): names(channel, "attribute") for channel in device.iter("channel")}
        assert found == {name: set(said.split()) for name, said in CHANNELS[str(device.get("name"))].items()}


def test_it_has_the_attributes_of_a_real_one(context: ET.Element) -> None:
    """And those that are left out are not there, so that the list stays true."""
    for device in context.iter("device"):
        for tag in ("attribute", "buffer-attribute", "debug-attribute"):
            found = {name for name in names(device, tag) if not name.startswith(("airdp_", "adi,"))}
            assert found == set(ATTRIBUTES[str(device.get("name"))].get(tag, "").split()), tag
    everywhere = {str(node.get("name")) for node in context.iter()}
    assert not everywhere & set(LEFT_OUT)


def test_it_has_the_properties_of_the_device_tree(client: RawClient, context: ET.Element) -> None:
    """They can be written, and change nothing before the chip is set up anew, as on a real one."""
    properties = {str(node.get("name")) for node in context.iter("debug-attribute")}
    assert sum(name.startswith("adi,") for name in properties) == DEVICE_TREE_PROPERTIES
    client.set(f"{PHY} DEBUG adi,rf-rx-bandwidth-hz", 5_000_000)
    assert client.read(f"{PHY} DEBUG adi,rf-rx-bandwidth-hz") == "5000000"
    assert client.read(f"{PHY} INPUT voltage0 rf_bandwidth") == "18000000"
    assert client.write(f"{PHY} DEBUG adi,rf-rx-bandwidth-hz", "wide") == -errno.EINVAL


@pytest.mark.parametrize("path", VALUES)
def test_it_says_what_a_real_one_says(client: RawClient, path: str) -> None:
    assert client.read(path) == VALUES[path]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (f"{PHY} OUTPUT altvoltage0 fastlock_recall", errno.EINVAL),
        (f"{PHY} dcxo_tune_fine", errno.ENODEV),
        (f"{PHY} multichip_sync", errno.EACCES),
        (f"{RX} INPUT voltage0 samples_pps", errno.ENODEV),
    ],
)
def test_it_cannot_read_what_a_real_one_cannot(client: RawClient, path: str, code: int) -> None:
    assert client.command(f"READ {path}") == -code


def test_paths_have_the_rates_of_a_real_one() -> None:
    with bench(tuned=False) as running:
        client = running.connect("ps")
        assert paths(client) == BOOT_PATHS
        taps = "\n".join(["RX 3 GAIN -6 DEC 4", "TX 3 GAIN 0 INT 4", *["1,-1"] * 128, ""])
        client.set(f"{PHY} filter_fir_config", taps)
        client.set(f"{PHY} INPUT out voltage_filter_fir_en", 1)
        client.set(f"{PHY} INPUT voltage0 sampling_frequency", 1_920_000)
        assert paths(client) == PATHS_WITH_FILTERS


def paths(client: RawClient) -> tuple[str, str]:
    return client.read(f"{PHY} rx_path_rates"), client.read(f"{PHY} tx_path_rates")
