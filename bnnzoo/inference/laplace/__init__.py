"""Laplace approximations: curvature at the mode, one file for each structure."""

__all__: list[str] = []
