"""Strangers' models: references, fits, table.

Run: python -m benchmarks.strangers references|nearest|run|table [model ...]      (references need numpyro)
"""

import json
import sys

from benchmarks.strangers import counts, course, dynamics, hierarchies  # noqa: F401 (each enters its models)
from benchmarks.strangers.catalogue import STRANGERS

if __name__ == "__main__":
    command, *names = sys.argv[1:]
    if command == "references":
        from benchmarks.strangers.references import references

        references(names)
    elif command == "nearest":
        from benchmarks.strangers.nearest import nearest

        nearest(names)
    elif command == "run":
        from benchmarks.strangers.runner import run

        run(names or list(STRANGERS))
    elif command == "worker":
        from benchmarks.strangers.runner import fitted, work

        work([(name, method) for name, method in json.loads(names[0])], fitted)
    elif command == "table":
        from benchmarks.strangers.table import table

        table()
    else:
        raise SystemExit(__doc__)
