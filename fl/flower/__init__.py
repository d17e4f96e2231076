"""Flower (flwr) over this project's air: a strategy, a client mod, and the ledger as a privacy accountant.

    ClientApp, mods=[over_the_air]          air node: a process beside the radios           ServerApp
    w_i − w̄ ──── private Unix socket ────→  clip, sound, plan, ledger, transmit, receive ──→ OverTheAir: the sum
    "n_i examples" ───────────────────────────────── Flower ───────────────────────────────→ who has handed in

An update reaches the server as part of a sum of waveforms, never in a message of Flower's. Only `over_the_air`,
`OverTheAir` and `LedgerAccountant` import flwr; node, mailbox and socket do not know it.
"""
