"""Debug attributes of the chip's driver that are properties of the device tree, with a Pluto's values.

As on a real one, what is written is kept and changes nothing by itself: it counts when the chip is set up anew, which
the attribute `initialize` does there and nothing does here.
"""

from functools import partial

from hardware.virtual.iiod.attributes import Attribute, whole

_PREFIX = "adi,"
_WORD = (-(1 << 31), (1 << 31) - 1)
_BOOTED = """
txmon-2-lo-cm 48
txmon-1-lo-cm 48
txmon-2-front-end-gain 2
txmon-1-front-end-gain 2
txmon-duration 8192
txmon-delay 511
txmon-one-shot-mode-enable 0
txmon-dc-tracking-enable 0
txmon-high-gain 24
txmon-low-gain 0
txmon-low-high-thresh 37000
gpo3-tx-delay-us 0
gpo3-rx-delay-us 0
gpo2-tx-delay-us 0
gpo2-rx-delay-us 0
gpo1-tx-delay-us 0
gpo1-rx-delay-us 0
gpo0-tx-delay-us 0
gpo0-rx-delay-us 0
gpo3-slave-tx-enable 0
gpo3-slave-rx-enable 0
gpo2-slave-tx-enable 0
gpo2-slave-rx-enable 0
gpo1-slave-tx-enable 0
gpo1-slave-rx-enable 0
gpo0-slave-tx-enable 0
gpo0-slave-rx-enable 0
gpo3-inactive-state-high-enable 0
gpo2-inactive-state-high-enable 0
gpo1-inactive-state-high-enable 0
gpo0-inactive-state-high-enable 0
gpo-manual-mode-enable-mask 0
gpo-manual-mode-enable 0
aux-dac2-tx-delay-us 0
aux-dac2-rx-delay-us 0
aux-dac2-active-in-alert-enable 0
aux-dac2-active-in-tx-enable 0
aux-dac2-active-in-rx-enable 0
aux-dac2-default-value-mV 0
aux-dac1-tx-delay-us 0
aux-dac1-rx-delay-us 0
aux-dac1-active-in-alert-enable 0
aux-dac1-active-in-tx-enable 0
aux-dac1-active-in-rx-enable 0
aux-dac1-default-value-mV 0
aux-dac-manual-mode-enable 1
aux-adc-decimation 256
aux-adc-rate 40000000
temp-sense-decimation 256
temp-sense-periodic-measurement-enable 1
temp-sense-offset-signed 206
temp-sense-measurement-interval-ms 1000
elna-gaintable-all-index-enable 0
elna-rx2-gpo1-control-enable 0
elna-rx1-gpo0-control-enable 0
elna-bypass-loss-mdB 0
elna-gain-mdB 0
elna-settling-delay-ns 0
ctrl-outs-enable-mask 255
ctrl-outs-index 0
rssi-duration 1000
rssi-wait 1
rssi-delay 1
rssi-unit-is-rx-samples-enable 0
rssi-restart-mode 3
fagc-adc-large-overload-inc-steps 2
fagc-power-measurement-duration-in-state5 64
fagc-rst-gla-if-en-agc-pulled-high-mode 0
fagc-rst-gla-en-agc-pulled-high-enable 0
fagc-rst-gla-large-lmt-overload-enable 1
fagc-rst-gla-large-adc-overload-enable 1
fagc-energy-lost-stronger-sig-gain-lock-exit-cnt 8
fagc-rst-gla-engergy-lost-sig-thresh-below-ll 10
fagc-rst-gla-engergy-lost-goto-optim-gain-enable 1
fagc-rst-gla-engergy-lost-sig-thresh-exceeded-enable 1
fagc-rst-gla-stronger-sig-thresh-above-ll 10
fagc-optimized-gain-offset 5
fagc-rst-gla-stronger-sig-thresh-exceeded-enable 1
fagc-use-last-lock-level-for-set-gain-enable 1
fagc-gain-index-type-after-exit-rx-mode 0
fagc-gain-increase-after-gain-lock-enable 0
fagc-final-overrange-count 3
fagc-lmt-final-settling-steps 1
fagc-lpf-final-settling-steps 1
fagc-lock-level-gain-increase-upper-limit 5
fagc-lock-level-lmt-gain-increase-enable 1
fagc-lp-thresh-increment-steps 1
fagc-lp-thresh-increment-time 5
fagc-allow-agc-gain-increase-enable 0
fagc-state-wait-time-ns 260
fagc-dec-pow-measurement-duration 64
agc-immed-gain-change-if-large-lmt-overload-enable 0
agc-immed-gain-change-if-large-adc-overload-enable 0
agc-gain-update-interval-us 1000
agc-sync-for-gain-counter-enable 0
agc-dig-gain-step-size 4
agc-dig-saturation-exceed-counter 3
agc-lmt-overload-large-inc-steps 2
agc-lmt-overload-small-exceed-counter 10
agc-lmt-overload-large-exceed-counter 10
agc-adc-lmt-small-overload-prevent-gain-inc-enable 0
agc-adc-large-overload-inc-steps 2
agc-adc-large-overload-exceed-counter 10
agc-adc-small-overload-exceed-counter 10
agc-outer-thresh-low-inc-steps 2
agc-outer-thresh-low 18
agc-inner-thresh-low-inc-steps 1
agc-inner-thresh-low 12
agc-inner-thresh-high-dec-steps 1
agc-inner-thresh-high 10
agc-outer-thresh-high-dec-steps 2
agc-outer-thresh-high 5
agc-attack-delay-extra-margin-us 1
mgc-split-table-ctrl-inp-gain-mode 0
mgc-dec-gain-step 2
mgc-inc-gain-step 2
mgc-rx2-ctrl-inp-enable 0
mgc-rx1-ctrl-inp-enable 0
gc-use-rx-fir-out-for-dec-pwr-meas-enable 0
gc-max-dig-gain 15
gc-dig-gain-enable 0
gc-low-power-thresh 24
gc-dec-pow-measurement-duration 8192
gc-lmt-overload-low-thresh 704
gc-lmt-overload-high-thresh 800
gc-adc-large-overload-thresh 58
gc-adc-small-overload-thresh 47
gc-adc-ovr-sample-size 4
gc-rx2-mode 2
gc-rx1-mode 2
update-tx-gain-in-alert-enable 0
tx-attenuation-mdB 10000
rf-tx-bandwidth-hz 18000000
rf-rx-bandwidth-hz 18000000
qec-tracking-slow-mode-enable 0
dc-offset-count-low-range 50
dc-offset-count-high-range 40
dc-offset-attenuation-low-range 5
dc-offset-attenuation-high-range 6
dc-offset-tracking-update-event-mask 5
clk-output-mode-select 0
external-rx-lo-enable 0
external-tx-lo-enable 0
xo-disable-use-ext-refclk-enable 1
tx-lo-powerdown-managed-enable 1
trx-synthesizer-target-fref-overwrite-hz 80008000
rx1-rx2-phase-inversion-enable 0
tx-rf-port-input-select-lock-enable 1
rx-rf-port-input-select-lock-enable 1
tx-rf-port-input-select 0
rx-rf-port-input-select 0
split-gain-table-mode-enable 0
1rx-1tx-mode-use-tx-num 1
1rx-1tx-mode-use-rx-num 1
2rx-2tx-mode-enable 0
digital-interface-tune-fir-disable 1
digital-interface-tune-skip-mode 0
tx-fastlock-pincontrol-enable 0
rx-fastlock-pincontrol-enable 0
rx-fastlock-delay-ns 0
tx-fastlock-delay-ns 0
tdd-skip-vco-cal-enable 0
tdd-use-dual-synth-mode-enable 0
debug-mode-enable 0
ensm-enable-txnrx-control-enable 0
ensm-enable-pin-pulse-mode-enable 0
frequency-division-duplex-independent-mode-enable 0
frequency-division-duplex-mode-enable 1
"""


def device_tree_attributes() -> list[Attribute]:
    """Of one radio."""
    values = {f"{_PREFIX}{name}": int(value) for name, value in map(str.split, _BOOTED.split("\n")[1:-1])}

    def write(name: str, value: str) -> None:
        values[name] = whole(value, _WORD)

    def read(name: str) -> str:
        return str(values[name])

    return [Attribute(name, partial(read, name), partial(write, name)) for name in values]
