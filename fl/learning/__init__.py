"""Models, data, local training and the server's step.

A model is a flat float32 vector of d parameters in the order of `nn.Module.parameters()`; an update is such a vector
too. Clients are trained independently of each other with random streams of their own, so results do not depend on how
many workers there are.
"""
