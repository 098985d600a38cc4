"""Files of rankings: documents, queries, judgements (qrels), candidates, and graded documents to learn from.

Each may be TSV, CSV, JSON lines (gzipped or not) or Parquet. Every error names the file and the row. The columns:

- documents and queries: `id`, `text`
- qrels: `query`, `doc`, `grade`
- candidates: `query`, `doc`, `rank` (without it the order of the rows counts)
- to learn from: `query`, `document`, `grade`, with texts in place of ids
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ..boundary import one_line
from ..errors import DataError, NoDataError, shown
from ..text.batches import is_unicode
from ..text.tables import cell_in, iterate_rows, text_in

Found = TypeVar("Found", bound=Mapping[str, Any])
PARTS = ("docs", "queries", "qrels", "candidates")
_SUFFIXES = (".tsv.gz", ".tsv", ".jsonl.gz", ".jsonl", ".csv.gz", ".csv", ".parquet")
_LARGEST = 1_000  # a grade beyond it makes 2^grade - 1 infinite


@dataclass(frozen=True)
class GradedList:
    """Documents of one query, and how relevant each is to it.

    Attributes:
        query: The query.
        documents: At least one.
        grades: As many as `documents`; 0 is irrelevant.
    """

    query: str
    documents: tuple[str, ...]
    grades: tuple[float, ...]


@dataclass(frozen=True)
class Collection:
    """Documents, queries, candidates of each query and judgements, by id.

    Attributes:
        docs: Id of a document -> its text.
        queries: Id of a query -> its text.
        candidates: Id of a query -> ids of its candidates, the best first.
        qrels: Id of a query -> id of a document -> grade.
    """

    docs: Mapping[str, str]
    queries: Mapping[str, str]
    candidates: Mapping[str, tuple[str, ...]]
    qrels: Mapping[str, Mapping[str, float]]

    @classmethod
    def load(cls, folder: str | Path) -> Collection:
        """What the files `docs`, `queries`, `qrels` and `candidates` of a folder hold, in any format."""
        return cls.read(**{part: part_of(Path(folder), part) for part in PARTS})

    @classmethod
    def read(cls, *, docs: Path, queries: Path, qrels: Path, candidates: Path) -> Collection:
        """What these files hold; raises for candidates or judgements that name what no file has."""
        texts, questions = read_texts(docs), read_texts(queries)
        made = cls(texts, questions, read_candidates(candidates), read_qrels(qrels))
        for query, ranked in made.candidates.items():
            _check_known(query, questions, "query", candidates, queries)
            for document in ranked:
                _check_known(document, texts, "document", candidates, docs)
        for query in made.qrels:
            _check_known(query, questions, "query", qrels, queries)
        return made

    def lists(self) -> dict[str, tuple[str, list[str]]]:
        """Id of a query -> its text, and the texts of its candidates."""
        return {
            query: (self.queries[query], [self.docs[document] for document in ranked])
            for query, ranked in self.candidates.items()
        }


def part_of(folder: Path, part: str) -> Path:
    """The file of a folder that holds `part` of a collection, whatever its format."""
    for suffix in _SUFFIXES:
        if (path := folder / f"{part}{suffix}").is_file():
            return path
    raise NoDataError(f"{folder} has no {part}{_SUFFIXES[0]}, nor {part} in another format; name another folder")


def read_texts(path: str | Path) -> dict[str, str]:
    """Id -> text of the documents or queries in a file, in its order."""
    found: dict[str, str] = {}
    for number, row in _rows(path):
        where = f"{path}, row {number}"
        name = _id(row, "id", where)
        if name in found:
            raise DataError(f"{where}: the id {shown(name)} is there twice; give each an id of its own")
        text = text_in(row, "text", None, where)
        assert isinstance(text, str)
        found[name] = text
    return _not_empty(found, path)


def read_qrels(path: str | Path) -> dict[str, dict[str, float]]:
    """Query -> document -> grade; raises if no document is graded above 0."""
    found: dict[str, dict[str, float]] = {}
    for number, row in _rows(path):
        where = f"{path}, row {number}"
        grades, document = found.setdefault(_id(row, "query", where), {}), _id(row, "doc", where)
        if document in grades:
            raise DataError(f"{where}: document {shown(document)} is judged twice for this query; keep one grade")
        grades[document] = grade_in(row, "grade", where)
    if not any(grade > 0 for grades in _not_empty(found, path).values() for grade in grades.values()):
        raise DataError(f"{path} has no positive: every grade is 0; judge at least one document above 0")
    return found


def read_candidates(path: str | Path) -> dict[str, tuple[str, ...]]:
    """Query -> its candidates, the best first: by `rank` where the file has it, else in the order of the rows."""
    ranked: dict[str, dict[str, float]] = {}
    for number, row in _rows(path):
        where = f"{path}, row {number}"
        places, document = ranked.setdefault(_id(row, "query", where), {}), _id(row, "doc", where)
        if document in places:
            raise DataError(f"{where}: document {shown(document)} is a candidate of this query twice; keep one row")
        places[document] = grade_in(row, "rank", where) if "rank" in row else len(places)
    # Sorting is stable: candidates with the same rank stay in the order of the file.
    return {query: tuple(sorted(places, key=places.__getitem__)) for query, places in _not_empty(ranked, path).items()}


def read_graded(
    path: str | Path, *, query_column: str = "query", document_column: str = "document", grade_column: str = "grade"
) -> list[GradedList]:
    """The graded documents of each query in a file, queries in the order in which they first come."""
    lists: dict[str, dict[str, float]] = {}
    for number, row in _rows(path):
        where = f"{path}, row {number}"
        pair = text_in(row, query_column, document_column, where)
        grade, grades = grade_in(row, grade_column, where), lists.setdefault(pair[0], {})
        if grades.setdefault(pair[1], grade) != grade:
            raise DataError(f"{where}: this document has another grade for the same query above; keep one of them")
    return [
        GradedList(query, tuple(grades), tuple(grades.values())) for query, grades in _not_empty(lists, path).items()
    ]


def grade_in(row: Mapping[str, Any], column: str, where: str) -> float:
    """The number in a column of a row; `where` names the row in errors."""
    value = cell_in(row, column, where)
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{where}: column {column!r} must hold a number: {one_line(error)}") from error
    if not math.isfinite(number) or (column == "grade" and abs(number) > _LARGEST):
        raise DataError(f"{where}: column {column!r} must hold a number of at most {_LARGEST:,}, got {shown(value)}")
    return number


def check_list(query: Any, documents: Any) -> tuple[str, list[str]]:
    """A query and its documents; raises unless the query and each document is a text that is not empty.

    Example:
        >>> check_list("who?", ("a", "b"))
        ('who?', ['a', 'b'])
    """
    if not isinstance(query, str):
        raise DataError(f"the query must be a text, got {shown(query)}")
    if not query.strip():
        raise DataError("the query is empty; give a text to rank documents for")
    if isinstance(documents, str | bytes | Mapping) or not hasattr(documents, "__iter__"):
        raise DataError(f"documents must be a list of texts, got {shown(documents)}; put one document into a list")
    listed = list(documents)
    if not listed:
        raise DataError("the list of documents is empty; give at least one")
    for number, document in enumerate(listed):
        if not isinstance(document, str):
            raise DataError(f"document {number} is not a text, got {shown(document)}")
        if not document.strip():
            raise DataError(f"document {number} is empty; leave it out")
    for text in (query, *listed):
        if not text.isascii() and not is_unicode(text):
            raise DataError(f"a text holds half of a character, {shown(text)}; read its file as UTF-8")
    return query, listed


def _rows(path: str | Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    return iterate_rows(Path(path))


def _id(row: Mapping[str, Any], column: str, where: str) -> str:
    """An id as text, whether the file holds it as a text or as a whole number."""
    value = cell_in(row, column, where)
    if isinstance(value, bool) or not isinstance(value, str | int) or str(value).strip() == "":
        raise DataError(f"{where}: column {column!r} must hold an id, a text or a whole number, got {shown(value)}")
    return str(value)


def _not_empty(found: Found, path: str | Path) -> Found:
    if not found:
        raise DataError(f"{path} has no rows; give a file with a header line and at least one row")
    return found


def _check_known(name: str, known: Mapping[str, Any], kind: str, path: Path, other: Path) -> None:
    if name not in known:
        raise DataError(f"{path} names {kind} {shown(name)}, which {other} does not have; add it there, or remove it")


def ranked_by(scores: Sequence[float]) -> list[int]:
    """The places of scores from the highest to the lowest; equal ones stay in their order.

    Example:
        >>> ranked_by([0.2, 0.9, 0.2])
        [1, 0, 2]
    """
    return sorted(range(len(scores)), key=lambda i: -scores[i])
