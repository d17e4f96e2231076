"""The server's side of a run whose clients and jammer are processes elsewhere."""
