"""Discrete latent sites, summed out exactly."""

__all__: list[str] = []
