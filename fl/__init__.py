"""Learning, power control, privacy, experiments and the command line.

Symbols follow the paper: K clients, client i holds n_i of n samples and weighs p_i = n_i/n; an update has d coordinates
and norm at most tau; alpha_u, alpha_i and alpha_CJ are the amplitudes of server, client and jammer; s_i >= 1 is a
client's back-off; sigma is the standard deviation of the noise per real coordinate after division by alpha_u.
"""
