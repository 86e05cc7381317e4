"""Hamiltonian kernels whose chains take trajectories of different lengths: HMC and NUTS."""

__all__: list[str] = []
