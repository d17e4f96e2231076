"""What was measured about a lab, as records that say where they come from.

Gains are complex amplitudes from a transmitter's full-scale coordinate to the receiver's coordinate (`phy`
conventions). Noise is measured in silence, never from residuals of a signal.

* `noise_var_real` is sigma_c^2, the variance of one real coordinate; its interval `ci` has equal tails
* `_std` is a standard uncertainty; of a complex value, that of each real component
* bins are in FFT order (0 is DC); rows over subcarriers run from the lowest frequency to the highest
* every measurement is a frozen dataclass that checks itself and has a JSON form (`calibration.schema`)

    silence -> noise, diagnostics        sounding -> links, linearity, timing        all of them -> record -> plots
"""
