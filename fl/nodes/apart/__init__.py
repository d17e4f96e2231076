"""Nodes in processes of their own, on machines of their own: keys, messages on a wire, and who may send when.

The server's process has the coordinator, the ledger and its own radio; every client and the jammer have theirs. What
crosses the link is public: plans, channels, decisions, the model on its way down. Updates do not.

`keys` says who is who, `wire` how messages look, `orders` what is said besides `fl.nodes.messages`, `switchboard` and
`post` are the two ends of the link, `permits` what a client checks before a sample leaves, `own_ledger` what it writes
down itself, `stage` and `uplink` the server's side of an uplink, `client` and `jammer` the nodes.
"""
