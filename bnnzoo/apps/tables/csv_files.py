"""CSV files read into frames."""

import bz2
import csv
import gzip
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pandas as pd

from bnnzoo.apps.tables.prepared_table import TableError

__all__ = ["read_table"]

OTHER_SEPARATORS = (";", "\t", "|")

_OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def read_table(path: Path, separator: str = ",", decimal: str = ".") -> pd.DataFrame:
    """Read a CSV file with a header into a frame with one row per observation.

    Parameters
    ----------
    path : Path
    separator : str
        One character, the separator between fields.
    decimal : {".", ","}
        Decimal mark of numbers.

    Returns
    -------
    pandas.DataFrame

    Raises
    ------
    TableError
        If there is no such file, or it is not such a table: for example if a line has more or fewer fields than the header.
    """
    separator = "\t" if separator == r"\t" else separator
    if len(separator) != 1 or separator in '\r\n"':
        raise TableError(rf"--separator must be one character, such as ',' or ';' or '\t', not {separator!r}.")
    if decimal not in (".", ","):
        raise TableError(f"--decimal must be '.' or ',', not {decimal!r}.")
    if decimal == separator:
        raise TableError(
            f"--decimal and --separator are both {decimal!r}, so a number with decimals would be two fields. Files with "
            "decimal commas separate fields by something else, usually --separator ';'."
        )
    try:
        _refuse_ragged(path, list(_fields(path, separator)))
        frame = pd.read_csv(path, sep=separator, decimal=decimal, index_col=False)
    except FileNotFoundError:
        raise TableError(f"There is no file {str(path)!r}.") from None
    except IsADirectoryError:
        raise TableError(f"{str(path)!r} is a folder; give the path of a CSV file.") from None
    except pd.errors.EmptyDataError:
        raise TableError(f"{str(path)!r} is empty; a header line and one line per observation are needed.") from None
    except (UnicodeDecodeError, csv.Error, pd.errors.ParserError, OSError, EOFError, lzma.LZMAError) as error:
        reason = " ".join(str(error).split())
        raise TableError(f"{str(path)!r} cannot be read as a CSV file in UTF-8: {reason}.") from None
    if frame.empty:
        raise TableError(f"{str(path)!r} has a header but no rows.")
    if frame.shape[1] == 1:
        raise TableError(
            f"{str(path)!r} has one column when split at {separator!r}, header {str(frame.columns[0])!r}; "
            "if the fields are separated by something else, say so with --separator."
        )
    return frame


def _fields(path: Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the header and then every line that is not blank: its number in the file, and its fields."""
    file: IO[str]
    with _OPENERS.get(path.suffix, open)(path, "rt", encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=separator)
        for fields in reader:
            if fields:
                yield reader.line_num, fields


def _refuse_ragged(path: Path, lines: list[tuple[int, list[str]]]) -> None:
    """Refuse lines that pandas would shift by one column, or fill up with missing values."""
    if not lines:
        return
    names = pd.Series(lines[0][1])
    repeated = names[names.duplicated() & (names != "")]
    if len(repeated):
        raise TableError(
            f"Column {repeated.iloc[0]!r} appears more than once in the header of {str(path)!r}; rename one."
        )
    ragged = [(line, fields) for line, fields in lines if len(fields) != len(names)]
    if not ragged:
        return
    line, fields = ragged[0]
    others = f" {len(ragged)} lines differ from the header." if len(ragged) > 1 else ""
    raise TableError(
        f"{str(path)!r} cannot be read as a CSV file in UTF-8: line {line} has {len(fields)} fields, but the header has "
        f"{len(names)}.{others} {_advice(fields, [*names])}"
    )


def _advice(fields: list[str], names: list[str]) -> str:
    if len(names) == 1 and (found := [mark for mark in OTHER_SEPARATORS if mark in names[0]]):
        mark = r"\t" if found[0] == "\t" else found[0]
        return f"The names seem to be separated by {mark!r}: use --separator '{mark}', and --decimal ',' for decimal commas."
    if len(fields) < len(names):
        return "Write a separator for each field that is empty."
    if fields[-1] == "":
        return "The line ends with a separator: remove it."
    return "Give every column a name, also one of row numbers, and put fields that contain the separator in quotes."
