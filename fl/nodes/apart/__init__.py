"""Nodes in processes of their own, on machines of their own: keys, messages on a wire, and who may send when.

The server's process has the coordinator, the ledger and its own radio; every client and the jammer have theirs. What
crosses the link is public: plans, channels, decisions, the model on its way down. Updates do not.

`keys` says who is who and `admission` who is let in, `wire` how messages look, `orders` what is said besides
`fl.nodes.messages`, `switchboard` and `post` are the two ends of the link, `client` a node that trains, `own_ledger`
what it checks before a sample leaves and writes down itself, `own_budget` what it allows, `comparison` both ledgers
side by side, `honesty` what the server can see of a liar, `stage` and `uplink` the server's side of an uplink.
"""
