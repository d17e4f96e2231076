"""From clipped updates at the clients to their noisy sum at the server.

An uplink is planned (public quantities only) and exchanged: just before the first sample leaves, the exchange lets its
caller write the plan's worst case into the ledger. Learning code sees `Uplink` and cannot tell which fidelity is behind
it:

* `ideal`   the exact weighted sum; no radio, no noise, so epsilon is infinite
* `symbol`  y = sum_i h_i x_i + h_CJ x_CJ + z on cells, the paper's block-fading equation
* the uplink over radios is `fl.nodes.radio_uplink`

`attempts` has the loop that tries a failed uplink again, `alpha_u` the rules for the common factor, `power_control`
what a client decides, `jammer` how much noise is added.
"""
