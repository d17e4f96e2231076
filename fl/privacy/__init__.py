"""What privacy was obtained, and why it may be claimed.

Every uplink is a Gaussian mechanism on the aggregate divided by tau: noise of standard deviation `sigma` per real
coordinate hides a change of norm Delta. Its loss is half the squared ratio, and losses add up over uplinks:

    S = 1/2 sum_m (Delta_m / sigma_m)^2,        mu = sqrt(2 S)   (the composition is itself a Gaussian mechanism)

Labels say which Delta may be claimed, neighbours say between which data sets:

* `paper-claim`  1/(n s_i): as published; true only where an update is a mean of per-sample terms bounded by tau
* `record`       the same number, earned by the local mode `record`; infinite otherwise
* `client`       p_i/s_i: always true, because the whole update is clipped
* `zero-out`     one record's (or client's) contribution is replaced by zero; sizes are public and stay
* `replace-one`  it is replaced by any other: twice the Delta

Unknown means infinite: an unknown sigma, an unearned label or a broken ledger never yields a finite epsilon.
"""
