"""Documents that results become: a self-contained page, and new files and folders that are complete or not there."""

__all__: list[str] = []
