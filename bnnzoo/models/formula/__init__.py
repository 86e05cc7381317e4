"""Models by formula: from a frame and a text such as ``"y ~ age + s(dose) + (1 | clinic)"`` to a Pyro model."""

from bnnzoo.models.formula.build import formula
from bnnzoo.models.formula.formula_likelihoods import FAMILIES
from bnnzoo.models.formula.model import Formula
from bnnzoo.models.formula.parsing import FormulaError

__all__ = ["FAMILIES", "Formula", "FormulaError", "formula"]
