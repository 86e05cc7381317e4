"""Tables on disk turned into arrays for a network: checked, split, standardised, and back to original units."""

from bnnzoo.tables.checking import check_table, infer_task
from bnnzoo.tables.preparing import prepare
from bnnzoo.tables.reading import read_table
from bnnzoo.tables.table import Table, TableError, Task
from bnnzoo.tables.units import restore_units

__all__ = ["Table", "TableError", "Task", "check_table", "infer_task", "prepare", "read_table", "restore_units"]
