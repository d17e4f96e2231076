"""Python programs of these packages that run as processes of their own."""

import os
from pathlib import Path


def child_environment() -> dict[str, str]:
    """This process's environment, with the place that these packages are imported from, however it was found."""
    above = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([above, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path}
