"""Server, client and jammer as nodes with a radio each, and the uplink that they make together.

The coordinator talks to nodes in small public messages over a link; an update never crosses it. All sample numbers in
messages are the server's; a node adds its own counter's offset. An uplink goes through

    SOUND      quiet, then each transmitter alone in its slot; the server measures noise and channels
    PLAN       channel state to each transmitter, which decides for itself
    AUTHORISE  the caller writes the worst case into the ledger
    TRANSMIT   all at once; each client fetches its own update now
    RECEIVE    the server demodulates the sum
    ACCOUNT    noise as measured around the payload

A failure before TRANSMIT costs no privacy; after it the worst case stays spent. Where the plan needs the jammer and it
is not there, nobody sends; where its noise may not have gone out whole, the uplink is accounted for without it.

`messages` and `link` are the language, `coordinator` with `stage` the public side, `noise` what is planned and counted,
`client`, `jammer`, `server` and `transmitter` the nodes, `soundings` what a sounding shows and how wrong it may be,
`diagnosis` what a simulation can know besides, and `radio_uplink` the adapter to the `Uplink` contract.
"""
