"""The UCI regression benchmark: any method, the standard and the gap splits, next to published results."""

from bnnzoo.apps.benchmarking.published import PUBLISHED
from bnnzoo.apps.benchmarking.sources import BenchmarkError, local_split, openml_split, parse_splits
from bnnzoo.apps.benchmarking.uci_benchmark import Score, differences, merge_uci, run_uci, score_split, summarise

__all__ = [
    "PUBLISHED",
    "BenchmarkError",
    "Score",
    "differences",
    "local_split",
    "merge_uci",
    "openml_split",
    "parse_splits",
    "run_uci",
    "score_split",
    "summarise",
]
