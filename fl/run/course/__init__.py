"""The course of a run: uplink after uplink, what each of them leaves behind, and the outcome."""
