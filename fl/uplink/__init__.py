"""From clipped updates at the clients to their noisy sum at the server.

An uplink is planned (public quantities only), prepared (updates become signals, nothing has left), authorised in the
ledger by the caller, and only then exchanged. Learning code sees `Uplink` and cannot tell which fidelity is behind it:

* `ideal`   the exact weighted sum; no radio, no noise, so epsilon is infinite
* `symbol`  y = sum_i h_i x_i + h_CJ x_CJ + z on cells, the paper's block-fading equation
"""
