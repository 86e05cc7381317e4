"""What every method returns, its covariances, and the file that it is saved in."""

__all__: list[str] = []
