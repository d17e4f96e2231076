"""Attacks on the project's own claims: what an adversary gets out of captures and sums, against what was claimed.

A claim says that neighbours are no further apart than two Gaussians of unit variance whose means differ by mu. Attacks
estimate that distance from what was received:

    runs         audits of whole runs, by canaries
    watch        what nodes sent and the server received in an uplink, and what they would have sent of something else
    paths        from an antenna to a receiver, without noise
    jamming      what a jammer's noise is like where it arrives
    separation   the worst direction, and the separation in it, by linear algebra
    attack       what is attacked, and how
    trials       many uplinks with and without changes, and the attacker's statistics of them
    estimate     mu from these
    looks        what one uplink's capture shows of its claim
    parts        noise and gain of a claim, each measured for itself
    verdict      claimed against measured
    composed     many uplinks in fading of their own, by linear algebra
    shown        a picture of each client, and a page of all of it

Sizes: d coordinates, N samples, K clients, M canaries. Statistics are real numbers, larger when the change is there.
"""
