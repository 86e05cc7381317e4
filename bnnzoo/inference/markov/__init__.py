"""Markov chains: how they are run, adapted, seeded and checkpointed."""

__all__: list[str] = []
