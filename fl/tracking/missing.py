"""Packages of trackers that are not there, named with the command that helps."""

from fl.errors import ConfigError


def missing(package: str, extra: str, error: ImportError) -> ConfigError:
    """What to raise where `package` cannot be imported."""
    return ConfigError(f"the package '{package}' cannot be imported ({error}): pip install 'airdp[{extra}]'")
