"""Models of Pyro's examples and tutorials."""

from tests.helpers.pyro_programs import deep, discrete, introductions, processes, sequences, series  # noqa: F401 - enter theirs
from tests.helpers.pyro_programs.catalogue import PROGRAMS, Program

__all__ = ["PROGRAMS", "Program"]
