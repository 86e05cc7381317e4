"""CSV files read into frames."""

from pathlib import Path

import pandas as pd

from bnnzoo.tables.table import TableError

__all__ = ["read_table"]


def read_table(path: Path, separator: str = ",") -> pd.DataFrame:
    """Read a CSV file with a header into a frame with one row per observation.

    Parameters
    ----------
    path : Path
    separator : str
        Separator between fields.

    Returns
    -------
    pandas.DataFrame

    Raises
    ------
    TableError
        If there is no such file, or it is not such a table.
    """
    try:
        frame = pd.read_csv(path, sep=separator)
        header = pd.read_csv(path, sep=separator, header=None, nrows=1, dtype=str).iloc[0]
    except FileNotFoundError:
        raise TableError(f"There is no file {str(path)!r}.") from None
    except IsADirectoryError:
        raise TableError(f"{str(path)!r} is a folder; give the path of a CSV file.") from None
    except pd.errors.EmptyDataError:
        raise TableError(f"{str(path)!r} is empty; a header line and one line per observation are needed.") from None
    except (UnicodeDecodeError, pd.errors.ParserError, OSError) as error:
        reason = " ".join(str(error).split())
        raise TableError(f"{str(path)!r} cannot be read as a CSV file in UTF-8: {reason}.") from None
    repeated = header[header.duplicated()]
    if len(repeated):
        raise TableError(
            f"Column {repeated.iloc[0]!r} appears more than once in the header of {str(path)!r}; rename one."
        )
    if frame.empty:
        raise TableError(f"{str(path)!r} has a header but no rows.")
    if frame.shape[1] == 1:
        raise TableError(
            f"{str(path)!r} has one column when split at {separator!r}, header {str(frame.columns[0])!r}; "
            "if the fields are separated by something else, say so with --separator."
        )
    return frame
