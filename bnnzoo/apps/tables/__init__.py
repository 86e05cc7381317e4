"""Tables on disk as arrays for a network: read, checked, split, standardised, and restored to original units."""

from bnnzoo.apps.tables.checking import check_table, infer_task
from bnnzoo.apps.tables.csv_files import read_table
from bnnzoo.apps.tables.original_units import restore_units
from bnnzoo.apps.tables.prepared_table import Missing, Table, TableError, Task
from bnnzoo.apps.tables.preparing import prepare

__all__ = [
    "Missing",
    "Table",
    "TableError",
    "Task",
    "check_table",
    "infer_task",
    "prepare",
    "read_table",
    "restore_units",
]
