"""Variational inference: the evidence lower bound and the families that maximise it."""

__all__: list[str] = []
