"""Ranges of configured numbers: wider than any lab or claim; sizes and squares stay away from the limits of floats."""

from typing import Annotated

from pydantic import Field

Positive = Annotated[float, Field(gt=0, le=1e9)]
NotNegative = Annotated[float, Field(ge=0, le=1e9)]
Scale = Annotated[float, Field(ge=1e-9, le=1e9)]
Decibels = Annotated[float, Field(ge=-120, le=120)]
Epsilon = Annotated[float, Field(ge=1e-6, le=1e9)]
Count = Annotated[int, Field(ge=1, le=10**9)]
