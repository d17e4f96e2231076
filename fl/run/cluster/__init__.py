"""One run on a cluster: its clients train on workers elsewhere, which must be like this machine."""
