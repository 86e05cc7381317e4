"""The zoo: named models with their data, methods that fit them, and reference posteriors to measure other methods by."""

from bnnzoo.zoo.card import Card, PriorChoice
from bnnzoo.zoo.catalogue import Catalogue, list, load  # noqa: A004 - bz.zoo.list() reads as it should
from bnnzoo.zoo.data import CardData, ZooError
from bnnzoo.zoo.reference import reference
from bnnzoo.zoo.score import score

__all__ = ["Card", "CardData", "Catalogue", "PriorChoice", "ZooError", "list", "load", "reference", "score"]
