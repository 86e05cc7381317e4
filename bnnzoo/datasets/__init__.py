"""Data sets: simulated, bundled with scikit-learn, or read from a local folder."""

from bnnzoo.datasets.bundled import breast_cancer, diabetes, digits, iris, wine
from bnnzoo.datasets.dataset import Dataset, Split
from bnnzoo.datasets.toy import binary, cubic, gap, heteroscedastic, moons, spiral, two_clusters
from bnnzoo.datasets.uci import uci, uci_split

__all__ = [
    "Dataset",
    "Split",
    "binary",
    "breast_cancer",
    "cubic",
    "diabetes",
    "digits",
    "gap",
    "heteroscedastic",
    "iris",
    "moons",
    "spiral",
    "two_clusters",
    "uci",
    "uci_split",
    "wine",
]
