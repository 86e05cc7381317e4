"""Checks of a model against its data: what it misses, what its prior says, and whether its fit can be trusted."""

from bnnzoo.checking.check import ModelCheck, check
from bnnzoo.checking.findings import Finding

__all__ = ["Finding", "ModelCheck", "check"]
