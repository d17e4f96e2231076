"""Errors of the learning side. All derive from `AirdpError`, so the command line reports them in one line."""

from phy.errors import AirdpError


class ConfigError(AirdpError):
    """A configuration key or value that cannot be used."""


class DataError(AirdpError):
    """A data set or a partition that cannot be made as asked."""


class ModelError(AirdpError):
    """A model that cannot be imported, built or trained in the chosen mode."""


class UntrustedCodeError(ModelError):
    """The folder of a run names code to import, and nobody has said that it may run."""


class PrivacyError(AirdpError):
    """A value on which a privacy statement would rest is invalid or unknown."""


class LedgerError(AirdpError):
    """A ledger that is damaged, edited, truncated or belongs to something else."""


class RunFolderError(AirdpError):
    """An output folder that cannot be used for this run."""


class ClusterError(AirdpError):
    """A cluster that does not answer, has no workers of use, or is lost."""


class SweepError(AirdpError):
    """A sweep that cannot start or go on: its cluster, a worker of it, or a trial that failed."""
