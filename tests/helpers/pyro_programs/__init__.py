"""Models of Pyro's examples and tutorials."""

from tests.helpers.pyro_programs import discrete, introductions, sequences
from tests.helpers.pyro_programs.catalogue import PROGRAMS, Program

__all__ = ["PROGRAMS", "Program"]
