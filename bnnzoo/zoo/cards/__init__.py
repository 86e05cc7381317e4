"""The cards: one file each, which defines ``CARD``. A new card is its file and its name in ``bnnzoo.zoo.catalogue``."""

__all__: list[str] = []
