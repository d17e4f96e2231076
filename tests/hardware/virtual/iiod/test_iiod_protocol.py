"""The text protocol over a bare socket: what each command answers, in order and out of order.

Error numbers are those of a real iiod and of the AD9361's driver.
"""

import errno
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator

import numpy as np
import pytest

from tests.hardware.virtual.iiod.raw_client import PHY, RX, RX_LO, TX, TX_LO, Bench, RawClient, as_words, bench, tone


@pytest.fixture(scope="module")
def shared() -> Iterator[Bench]:
    with bench() as running:
        yield running


@pytest.fixture
def client(shared: Bench) -> Iterator[RawClient]:
    with RawClient(shared.emulator.uris["ps"]) as connection:
        yield connection


class TestConversation:
    def test_version_has_a_tag_of_seven_characters_at_least(self, client: RawClient) -> None:
        client.send(b"VERSION\r\n")
        assert client.line() == b"0.24.v0.24  \n"

    @pytest.mark.parametrize(
        "line", ["ZPRINT", "BINARY", "HELLO", "READ", "OPEN", "OPEN x", "SET x", "\x00\xff", "PRINT x"]
    )
    def test_what_is_not_understood_is_invalid(self, client: RawClient, line: str) -> None:
        assert client.command(line) == -errno.EINVAL
        assert client.read(f"{PHY} ensm_mode") == "fdd"

    def test_blank_lines_are_ignored(self, client: RawClient) -> None:
        client.send(b"\r\n\r\n  \r\n")
        assert client.command("TIMEOUT 1000") == 0

    def test_several_commands_in_one_packet_are_answered_in_order(self, client: RawClient) -> None:
        client.send(b"TIMEOUT 1\r\nNONSENSE\r\nTIMEOUT 2500\r\n")
        assert [client.number() for _ in range(3)] == [0, -errno.EINVAL, 0]

    def test_exit_hangs_up(self, client: RawClient) -> None:
        client.send(b"EXIT\r\n")
        assert client.line() == b""

    def test_a_device_goes_by_its_name_or_its_number(self, client: RawClient) -> None:
        assert client.read("iio:device1 ensm_mode") == client.read(f"{PHY} ensm_mode")

    def test_no_device_has_a_trigger(self, client: RawClient) -> None:
        assert client.command(f"GETTRIG {RX}") == -errno.ENOENT
        assert client.command(f"SETTRIG {RX} x") == -errno.ENOENT
        assert client.command("GETTRIG nothing") == -errno.ENODEV


class TestContext:
    def test_it_lists_the_devices_of_a_pluto_with_real_file_names(self, client: RawClient) -> None:
        length = client.command("PRINT")
        text = client.take(length + 1)
        assert text.endswith(b"\n")
        context = ET.fromstring(text)  # noqa: S314 - it comes from ourselves
        attributes = {node.get("name"): node.get("value") for node in context.iter("context-attribute")}
        assert attributes["airdp,virtual"] == "lockstep"
        assert attributes["fw_version"] == "v0.38"
        assert {"hw_model", "hw_serial"} <= set(attributes)
        assert [device.get("name") for device in context.iter("device")] == ["adm1177", PHY, "xadc", TX, RX]
        files = {node.get("filename") for node in context.iter("attribute")}
        assert {
            "in_voltage_rf_bandwidth",
            "in_voltage_sampling_frequency",
            "in_voltage0_hardwaregain",
            "in_voltage0_gain_control_mode",
            "in_voltage0_rf_port_select",
            "in_out_voltage_filter_fir_en",
            "out_voltage0_hardwaregain",
            "out_voltage_sampling_frequency",
            "out_altvoltage0_RX_LO_frequency",
            "out_altvoltage1_TX_LO_frequency",
            "out_altvoltage0_TX1_I_F1_frequency",
            "out_altvoltage3_TX1_Q_F2_scale",
        } <= files

    def test_the_channels_that_stream_come_first_and_have_their_formats(self, client: RawClient) -> None:
        context = ET.fromstring(client.take(client.command("PRINT") + 1))  # noqa: S314
        formats = {RX: "le:S12/16>>0", TX: "le:S16/16>>0"}
        for device in context.iter("device"):
            scans = [channel.find("scan-element") for channel in device.iter("channel")]
            streaming = [scan for scan in scans if scan is not None]
            wanted = formats.get(str(device.get("name")))
            assert [scan.get("format") for scan in streaming] == ([wanted] * 2 if wanted else [])
            assert scans[: len(streaming)] == streaming
            assert [scan.get("index") for scan in streaming] == [str(index) for index in range(len(streaming))]


class TestAttributes:
    def test_the_radio_boots_as_a_pluto_does(self) -> None:
        """Oracle: the device tree zynq-pluto-sdr.dtsi of plutosdr-fw, and a Pluto's dump for tones and registers."""
        with bench(tuned=False) as running:
            client = running.connect("client-2")
            said = {
                "INPUT voltage0 sampling_frequency": "30720000",
                f"{RX_LO} frequency": "2400000000",
                f"{TX_LO} frequency": "2450000000",
                f"{RX_LO} powerdown": "0",
                f"{TX_LO} powerdown": "0",
                "INPUT voltage0 rf_bandwidth": "18000000",
                "OUTPUT voltage0 rf_bandwidth": "18000000",
                "OUTPUT voltage0 hardwaregain": "-10.000000 dB",
                "INPUT voltage0 gain_control_mode": "slow_attack",
                "INPUT voltage0 hardwaregain": "71.000000 dB",
                "ensm_mode": "fdd",
                "DEBUG loopback": "0",
            }
            assert {path: client.read(f"{PHY} {path}") for path in said} == said
            tones = [
                [client.read(f"{TX} OUTPUT altvoltage{tone} {name}") for name in ("raw", "scale", "phase")]
                for tone in range(4)
            ]
            assert tones == [["1", "0.000000", phase] for phase in ("90000", "90000", "0", "0")]
            assert client.debug("airdp_tx_power") == "0"

    @pytest.mark.parametrize(
        ("device", "register", "value"),
        [(TX, "0x80000000", "0x90162"), (RX, "0x80000000", "0xA0062"), (PHY, "0x37", "0xA")],
    )
    def test_registers_tell_versions(self, device: str, register: str, value: str) -> None:
        """The transmit core's is in a Pluto's dump, the chip's is what the kernel's driver looks for."""
        with bench() as running:
            client = running.connect("ps")
            client.set(f"{device} DEBUG direct_reg_access", register)
            assert client.read(f"{device} DEBUG direct_reg_access") == value

    def test_gains_follow_the_frequency(self) -> None:
        """Ranges of the three gain tables of the kernel's driver; tuning keeps the index, so the gain in dB moves."""
        with bench() as running:
            client = running.connect("ps")
            gain = f"{PHY} INPUT voltage0 hardwaregain"
            client.set(gain, 40)
            said = []
            for lo_hz in (1_300_000_000, 1_300_000_001, 4_000_000_000, 4_000_000_001, 2_400_000_000):
                client.set(f"{PHY} {RX_LO} frequency", lo_hz)
                said.append((client.read(f"{gain}_available"), float(client.read(gain).split()[0])))
            low, middle, high = ("[-1 1 73]", 42.0), ("[-3 1 71]", 40.0), ("[-10 1 62]", 31.0)
            assert said == [low, middle, middle, high, middle]
            client.set(f"{PHY} {RX_LO} frequency", 5_800_000_000)
            client.set(gain, -10)
            assert client.write(gain, "63") == -errno.EINVAL
            client.set(f"{PHY} {RX_LO} frequency", 900_000_000)
            client.set(gain, 73)
            assert client.write(gain, "-2") == -errno.EINVAL

    @pytest.mark.parametrize(
        ("path", "good", "read_back"),
        [
            (f"{PHY} {RX_LO} frequency", "70000000", "70000000"),
            (f"{PHY} RX_LO frequency".replace("RX_LO", "OUTPUT RX_LO"), "6000000000", "6000000000"),
            (f"{PHY} {TX_LO} frequency", "2412000000", "2412000000"),
            (f"{PHY} INPUT voltage0 rf_bandwidth", "200000", "200000"),
            (f"{PHY} OUTPUT voltage0 rf_bandwidth", "40000000.0", "40000000"),
            (f"{PHY} OUTPUT voltage0 rf_bandwidth", "40960000", "40960000"),
            (f"{PHY} INPUT voltage0 rf_bandwidth", "56000001", "56000000"),
            (f"{PHY} INPUT voltage0 sampling_frequency", "61440000", "61440000"),
            (f"{PHY} OUTPUT voltage0 sampling_frequency", "2083333", "2083333"),
            (f"{PHY} OUTPUT voltage0 hardwaregain", "-10.3", "-10.250000 dB"),
            (f"{PHY} OUTPUT voltage0 hardwaregain", "-89.75 dB", "-89.750000 dB"),
            (f"{PHY} INPUT voltage0 gain_control_mode", "hybrid", "hybrid"),
            (f"{PHY} INPUT voltage0 quadrature_tracking_en", "0", "0"),
            (f"{PHY} INPUT voltage0 rf_port_select", "B_BALANCED", "B_BALANCED"),
            (f"{PHY} ensm_mode", "alert", "alert"),
            (f"{PHY} calib_mode", "manual", "manual"),
            (f"{PHY} trx_rate_governor", "highest_osr", "highest_osr"),
            (f"{PHY} xo_correction", "39999990", "39999990"),
            (f"{PHY} DEBUG loopback", "2", "2"),
            (f"{PHY} DEBUG airdp_block", "7", "7"),
            (f"{TX} OUTPUT altvoltage0 phase", "90000", "90000"),
            (f"{TX} OUTPUT TX1_Q_F1 scale", "0.25", "0.250000"),
            (f"{TX} OUTPUT altvoltage3 raw", "1", "1"),
        ],
    )
    def test_a_good_value_reads_back(self, path: str, good: str, read_back: str) -> None:
        with bench() as running:
            client = running.connect("ps")
            client.set(path, good)
            assert client.read(path) == read_back

    @pytest.mark.parametrize(
        ("path", "bad"),
        [
            (f"{PHY} {RX_LO} frequency", "69999999"),
            (f"{PHY} {TX_LO} frequency", "6000000001"),
            (f"{PHY} {TX_LO} frequency", "2.4e9"),
            (f"{PHY} {TX_LO} frequency", "-2400000000"),
            (f"{PHY} INPUT voltage0 rf_bandwidth", "-1"),
            (f"{PHY} OUTPUT voltage0 rf_bandwidth", "4294967296"),
            (f"{PHY} INPUT voltage0 sampling_frequency", "2083332"),
            (f"{PHY} INPUT voltage0 sampling_frequency", "61440001"),
            (f"{PHY} OUTPUT voltage0 hardwaregain", "0.25"),
            (f"{PHY} OUTPUT voltage0 hardwaregain", "-90"),
            (f"{PHY} OUTPUT voltage0 hardwaregain", "nan"),
            (f"{PHY} INPUT voltage0 gain_control_mode", "automatic"),
            (f"{PHY} INPUT voltage0 quadrature_tracking_en", "2"),
            (f"{PHY} ensm_mode", "tx"),
            (f"{PHY} filter_fir_config", "RX 3 GAIN 0 DEC 4\n1,2,3\n"),
            (f"{PHY} DEBUG loopback", "3"),
            (f"{PHY} DEBUG airdp_block", "-1"),
            (f"{PHY} DEBUG direct_reg_access", "0x88 0x"),
            (f"{RX} DEBUG direct_reg_access", "0xFFFFFFFFF"),
            (f"{RX} INPUT voltage0 sampling_frequency", "1"),
            (f"{TX} OUTPUT altvoltage0 frequency", "2000001"),
            (f"{TX} OUTPUT altvoltage0 scale", "1.1"),
            (f"{PHY} {RX_LO} frequency", ""),
        ],
    )
    def test_a_value_that_the_driver_refuses_is_invalid_and_changes_nothing(
        self, client: RawClient, path: str, bad: str
    ) -> None:
        before = client.read(path)
        assert client.write(path, bad) == -errno.EINVAL
        assert client.read(path) == before

    @pytest.mark.parametrize(
        ("path", "code"),
        [
            (f"{PHY} nothing", errno.ENOENT),
            (f"{PHY} DEBUG nothing", errno.ENOENT),
            (f"{PHY} BUFFER nothing", errno.ENOENT),
            (f"{PHY} INPUT voltage0 nothing", errno.ENOENT),
            (f"{PHY} INPUT voltage9 rssi", errno.ENXIO),
            ("iio:device9 nothing", errno.ENODEV),
            (f"{PHY} multichip_sync", errno.EACCES),
            (f"{PHY} dcxo_tune_coarse", errno.ENODEV),
            (f"{PHY} SIDEWAYS voltage0 rssi", errno.EINVAL),
        ],
    )
    def test_what_cannot_be_read_says_why(self, client: RawClient, path: str, code: int) -> None:
        assert client.command(f"READ {path}") == -code

    @pytest.mark.parametrize(
        ("path", "code"),
        [
            (f"{PHY} INPUT voltage0 rssi", errno.EACCES),
            (f"{PHY} INPUT temp0 input", errno.EACCES),
            (f"{PHY} ensm_mode_available", errno.EACCES),
            (f"{PHY} DEBUG airdp_time", errno.EACCES),
            (f"{PHY} nothing", errno.ENOENT),
            ("iio:device9 ensm_mode", errno.ENODEV),
        ],
    )
    def test_what_cannot_be_written_says_why_and_the_conversation_goes_on(
        self, client: RawClient, path: str, code: int
    ) -> None:
        assert client.write(path, "1") == -code
        assert client.command("TIMEOUT 2500") == 0

    def test_receive_gain_outside_manual_mode_is_ignored_with_success_as_by_the_driver(self) -> None:
        with bench() as running:
            client = running.connect("ps")
            gain = f"{PHY} INPUT voltage0 hardwaregain"
            client.set(f"{PHY} INPUT voltage0 gain_control_mode", "hybrid")
            client.set(gain, "30")
            assert client.read(gain) == "0.000000 dB"
            client.set(f"{PHY} INPUT voltage0 gain_control_mode", "manual")
            client.set(gain, "30.4")
            assert client.read(gain) == "30.000000 dB"
            assert client.write(gain, "72") == -errno.EINVAL
            assert client.write(gain, "-4") == -errno.EINVAL

    def test_low_rates_need_the_filters(self) -> None:
        with bench() as running:
            client = running.connect("ps")
            rate, fir = f"{PHY} INPUT voltage0 sampling_frequency", f"{PHY} INPUT out voltage_filter_fir_en"
            assert client.write(rate, "1000000") == -errno.EINVAL
            taps = "\n".join(["RX 3 GAIN -6 DEC 4", "TX 3 GAIN 0 INT 4", *["1,-1"] * 128, ""])
            client.set(f"{PHY} filter_fir_config", taps)
            assert client.read(f"{PHY} filter_fir_config") == "FIR Rx: 128,4 Tx: 128,4"
            client.set(fir, 1)
            assert client.read(f"{PHY} INPUT voltage0 sampling_frequency_available") == "[520833 1 61440000]"
            client.set(rate, "1000000")
            assert client.write(fir, "0") == -errno.EINVAL
            assert client.write(rate, "520832") == -errno.EINVAL
            client.set(rate, "3000000")
            client.set(fir, 0)
            assert client.read(f"{PHY} OUTPUT voltage0 filter_fir_en") == "0"

    def test_path_rates_end_in_the_sample_rate(self, client: RawClient) -> None:
        names = [pair.split(":")[0] for pair in client.read(f"{PHY} tx_path_rates").split()]
        assert names == ["BBPLL", "DAC", "T2", "T1", "TF", "TXSAMP"]
        rates = [int(pair.split(":")[1]) for pair in client.read(f"{PHY} rx_path_rates").split()]
        assert rates[-1] == 4_000_000
        assert rates == sorted(rates, reverse=True)

    def test_a_value_that_is_too_long_ends_the_connection(self, client: RawClient) -> None:
        assert client.command(f"WRITE {PHY} ensm_mode 70000") == -errno.EINVAL
        assert client.line() == b""

    def test_a_trailing_nul_or_line_feed_is_no_part_of_a_value(self, client: RawClient) -> None:
        client.send(f"WRITE {PHY} ensm_mode 5\r\n".encode() + b"fdd\n\0")
        assert client.number() == 5


class TestRegisters:
    def test_a_register_keeps_what_was_written(self, client: RawClient) -> None:
        client.set(f"{PHY} DEBUG direct_reg_access", "0x3FF 0x2A")
        client.set(f"{PHY} DEBUG direct_reg_access", "0x37")
        assert client.read(f"{PHY} DEBUG direct_reg_access") == "0xA"
        client.set(f"{PHY} DEBUG direct_reg_access", "1023")
        assert client.read(f"{PHY} DEBUG direct_reg_access") == "0x2A"

    def test_status_bits_stay_until_they_are_written(self) -> None:
        with bench() as running:
            client = running.connect("ps")
            assert client.status(RX) == 0
            client.set(f"{PHY} DEBUG airdp_drop_rx_buffers", 1)
            client.open_rx(100)
            assert client.status(RX) == 4
            assert client.status(RX) == 4
            client.set(f"{RX} DEBUG direct_reg_access", "0x80000088 0x1")
            assert client.status(RX) == 4
            client.set(f"{RX} DEBUG direct_reg_access", "0x80000088 0x4")
            assert client.status(RX) == 0


class TestBuffers:
    @pytest.mark.parametrize(
        ("line", "code"),
        [
            (f"OPEN {RX} 0 00000003", errno.EINVAL),
            (f"OPEN {RX} -5 00000003", errno.EINVAL),
            (f"OPEN {RX} 100 3", errno.EINVAL),
            (f"OPEN {RX} 100 00000000", errno.EINVAL),
            (f"OPEN {RX} 100 00000004", errno.EINVAL),
            (f"OPEN {RX} 100 0000000g", errno.EINVAL),
            (f"OPEN {RX} 100 00000003 CYCLIC", errno.EINVAL),
            (f"OPEN {RX} 100 00000003 AGAIN", errno.EINVAL),
            (f"OPEN {PHY} 100 00000001", errno.EINVAL),
            (f"OPEN {RX} 99999999999999999999 00000003", errno.EINVAL),
            (f"OPEN {RX} 4294967295 00000003", errno.ENOMEM),
            (f"OPEN {TX} 100000000 00000003", errno.ENOMEM),
            ("OPEN nothing 100 00000003", errno.ENODEV),
            (f"CLOSE {RX}", errno.ENXIO),
            (f"CLOSE {PHY}", errno.ENXIO),
            (f"READBUF {RX} 400", errno.EBADF),
            (f"READBUF {TX} 400", errno.EBADF),
            (f"WRITEBUF {TX} 400", errno.EBADF),
            (f"WRITEBUF {RX} 400", errno.EBADF),
            (f"SET {RX} BUFFERS_COUNT 0", errno.EINVAL),
            (f"SET {RX} BUFFERS_COUNT 65", errno.EINVAL),
            (f"SET {PHY} BUFFERS_COUNT 4", errno.EINVAL),
        ],
    )
    def test_what_cannot_be_done_says_why(self, client: RawClient, line: str, code: int) -> None:
        assert client.command(line) == -code

    def test_a_transmit_buffer_belongs_to_one_client(self, shared: Bench, client: RawClient) -> None:
        client.open_tx(100)
        assert client.command(f"OPEN {TX} 100 00000003") == -errno.EBUSY
        with RawClient(shared.emulator.uris["ps"]) as other:
            assert other.command(f"OPEN {TX} 100 00000003") == -errno.EBUSY
            assert other.command(f"OPEN {TX} 100 00000003 CYCLIC") == -errno.EBUSY
            assert other.command(f"SET {TX} BUFFERS_COUNT 8") == -errno.EBUSY
            client.done(f"CLOSE {TX}")
            other.open_tx(100)

    def test_a_buffer_can_be_opened_again_on_the_same_connection(self, client: RawClient) -> None:
        for _ in range(3):
            client.open_rx(50)
            assert client.read_words(50).shape == (50, 2)
            client.done(f"CLOSE {RX}")

    def test_each_read_sends_the_mask_once_and_may_take_several_blocks_or_a_part_of_one(self) -> None:
        with bench() as running:
            client = running.connect("ps")
            client.open_rx(100)
            client.send(f"READBUF {RX} 1000\r\n".encode())
            assert [client.number(), client.line()] == [400, b"00000003\n"]
            client.take(400)
            assert client.number() == 400
            client.take(400)
            assert client.number() == 200
            client.take(200)
            client.send(f"READBUF {RX} 1000\r\n".encode())
            assert [client.number(), client.line()] == [200, b"00000003\n"]

    def test_one_channel_alone(self) -> None:
        samples = tone(500, 0.01) + 0.1
        with bench() as running:
            sender = running.sender(500)
            clients = [running.connect("ps") for _ in range(3)]
            for mask, client in enumerate(clients, 1):
                client.open_rx(500, mask)
            sender.write_samples(samples)
            in_phase, quadrature = (client.read_words(500, channels=1)[:, 0] for client in clients[:2])
            both = clients[2].read_words(500)
        assert np.array_equal(both, np.stack([in_phase, quadrature], axis=1))
        assert np.abs(both[:, 0] / 2048 - samples.real).max() < 1e-3

    @pytest.mark.parametrize("mask", [1, 2])
    def test_sending_one_channel_leaves_the_other_silent(self, mask: int) -> None:
        words = as_words(tone(300, 0.01))[:, :1]
        with bench() as running:
            receiver = running.receiver(300)
            sender = running.connect("client-1")
            sender.set(f"{PHY} OUTPUT voltage0 hardwaregain", 0)
            receiver.done(f"CLOSE {RX}")
            sender.open_tx(300, mask)
            receiver.open_rx(300)
            assert sender.write_words(words) == words.nbytes
            heard = receiver.read_words(300)
        assert np.abs(heard[:, mask - 1] - words[:, 0] / 8).max() <= 0.5
        assert not heard[:, 2 - mask].any()

    def test_the_queue_is_as_long_as_asked_for(self) -> None:
        with bench() as running:
            client = running.connect("ps")
            client.done(f"SET {RX} BUFFERS_COUNT 3")
            client.open_rx(100)
            assert client.debug("airdp_time") == "300"
            client.read_words(100)
            assert client.debug("airdp_time") == "400"

    def test_nothing_in_time_closes_the_buffer_as_on_a_real_radio(self) -> None:
        with bench() as running:
            sender, receiver = running.sender(100), running.connect("ps")
            sender.done("TIMEOUT 100")
            receiver.done("TIMEOUT 100")
            receiver.open_rx(100)
            assert receiver.command(f"READBUF {RX} 400") == -errno.ETIMEDOUT
            assert receiver.command(f"READBUF {RX} 400") == -errno.EBADF
            receiver.done(f"CLOSE {RX}")
            sender.done(f"CLOSE {TX}")
            receiver.open_rx(100)
            receiver.read_words(100)

    def test_a_full_queue_makes_the_sender_wait_until_it_gives_up(self) -> None:
        words = as_words(tone(100, 0.1))
        with bench() as running:
            sender, other = running.sender(100), running.sender(100, "client-2")
            sender.done("TIMEOUT 100")
            answers = [sender.write_words(words) for _ in range(5)]
            assert answers == [400] * 4 + [-errno.ETIMEDOUT]
            assert sender.debug("airdp_tx_power") == "0"
            other.done(f"CLOSE {TX}")

    def test_the_longest_time_out_of_a_radios_clients_holds(self) -> None:
        with bench() as running:
            running.sender(100)
            receiver, patient = running.connect("ps"), running.connect("ps")
            receiver.done("TIMEOUT 50")
            patient.done("TIMEOUT 400")
            receiver.open_rx(100)
            started = time.monotonic()
            assert receiver.command(f"READBUF {RX} 400") == -errno.ETIMEDOUT
            assert time.monotonic() - started >= 0.4

    def test_a_cyclic_buffer_takes_one_block(self, client: RawClient) -> None:
        words = as_words(tone(64, 0.25))
        client.open_tx(64, cyclic=True)
        assert client.write_words(np.concatenate([words, words])) == -errno.EINVAL
        assert client.write_words(words) == words.nbytes
        assert client.write_words(words) == -errno.EBUSY

    def test_lengths_that_are_no_whole_samples(self, client: RawClient) -> None:
        client.open_tx(64)
        assert client.command(f"WRITEBUF {TX} 6") == -errno.EINVAL
        assert client.command(f"WRITEBUF {TX} 0") == 0
        client.open_rx(64)
        assert client.command(f"READBUF {RX} 3") == 0

    def test_a_reader_that_is_slow_to_get_its_block_does_not_hold_up_who_waits_for_its_room(self) -> None:
        size, part = 4_000_000, 250_000
        with bench() as running:
            sender, receiver = running.sender(part), running.connect("ps")
            receiver.done(f"SET {RX} BUFFERS_COUNT 1")
            receiver.open_rx(size)
            silence = np.zeros((part, 2), np.int16)
            # One block that is received, and a queue that is full.
            for _ in range(size // part + 4):
                assert sender.write_words(silence) == silence.nbytes
            sender.done("TIMEOUT 20000")
            sender.send(f"WRITEBUF {TX} {silence.nbytes}\r\n".encode())
            # More than the system keeps for a client that does not read.
            receiver.send(f"READBUF {RX} {4 * size}\r\n".encode())
            assert sender.number() == 0

    def test_a_client_that_vanishes_leaves_nothing_behind(self) -> None:
        with bench() as running:
            receiver = running.receiver(100)
            for end in (b"", f"WRITEBUF {TX} 400\r\n".encode(), f"WRITEBUF {TX} 400\r\n".encode() + bytes(17)):
                sender = running.sender(100)
                sender.send(end)
                sender.close()
            receiver.read_words(1000)
            running.sender(100)

    def test_a_client_that_vanishes_while_it_waits_frees_its_buffer(self) -> None:
        with bench() as running:
            sender, receiver = running.sender(100), running.receiver(100)
            receiver.send(f"READBUF {RX} 400\r\n".encode())
            receiver.close()
            # Were the buffer still there, its four blocks would be all that could be sent.
            for _ in range(20):
                sender.write_samples(tone(100, 0.1))

    def test_a_client_that_vanishes_while_time_stands_still_frees_its_buffer(self) -> None:
        with bench() as running:
            running.sender(100)
            receiver = running.receiver(100)
            receiver.done("TIMEOUT 600000")
            receiver.send(f"READBUF {RX} 400\r\n".encode())
            receiver.close()
            deadline = time.monotonic() + 20
            while running.emulator.status()[0].rx_buffers:
                assert time.monotonic() < deadline
                time.sleep(0.01)
