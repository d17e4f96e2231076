"""A backend of a package that airdp knows nothing of: radios that are connected by one cable."""
