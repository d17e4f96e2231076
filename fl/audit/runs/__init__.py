"""Audits of whole runs, by canaries.

canaries     records of a run that are replaced by known directions, each there or not
evidence     what a run's uplinks say about them
bounds       lower bounds of mu and epsilon from guesses about canaries
"""
