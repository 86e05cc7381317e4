"""Subsets of the parameters: selections, conditional densities, hierarchies, trained weights."""

__all__: list[str] = []
