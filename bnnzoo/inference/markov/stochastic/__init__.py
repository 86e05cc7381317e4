"""Stochastic-gradient Markov chain Monte Carlo: SGLD, PSGLD, SGHMC, cyclical chains and stochastic MCLMC."""

__all__: list[str] = []
