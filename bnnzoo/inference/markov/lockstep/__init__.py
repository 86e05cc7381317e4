"""Samplers whose chains all take the same number of steps: ChEES-HMC, MAMS and MCLMC."""

__all__: list[str] = []
