"""Sweeps that ship with airdp, one TOML file each (`airdp configs`)."""
