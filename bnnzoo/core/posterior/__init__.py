"""Posteriors, their covariances, and the file in which they are saved."""

__all__: list[str] = []
