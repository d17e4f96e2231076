"""What only whoever has all clients in one process can know: the exact sum, and where errors come from.

It looks on, and nothing that is sent or charged depends on it. Where nodes are on machines of their own it is absent.
"""
