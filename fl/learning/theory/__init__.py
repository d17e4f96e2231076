"""What the convergence theorem needs to be known of a model and its data: its constants, and how they are estimated."""
