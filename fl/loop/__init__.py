"""A user's own training loop over airdp's air, with the ledger ahead of every transmission."""
