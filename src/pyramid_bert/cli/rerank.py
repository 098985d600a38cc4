"""Rank documents for a query, or the candidates of many queries in a file of any size.

With --query and --documents the best documents are printed, one a line: rank, score and text; with --json, one JSON
object a line, with the document's place in the file (`corpus_id`) and its `id` if it has one.

With --data and --out each row is a query with its candidates, as {"query": "...", "documents": ["...", "..."]}; a
document may also be {"id": "...", "text": "..."}. The rows are written with the column `ranked` added: place, score and
id of the best documents, the best first. Give the same command again to resume a stopped run: it goes on only if the
model, the data and the settings are the same. --restart starts over.

The model is a folder of transformers, of a CrossEncoder, or an exported one; it gives one score for a pair of texts.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..boundary import printable
from ..counting import steps_shown
from ..errors import DataError, UsageError, shown
from ..version import __version__
from . import options
from .streaming import digests, write_rows

if TYPE_CHECKING:
    from ..reranker import PyramidReranker

CHUNK = 64  # lists in memory at once
_RESULT_OPTIONS = ("query-column", "documents-column", "max-length", "speed", "optimize", "top-k")
_ADDED = "ranked"
List = tuple[str, list[str], list[Any] | None]  # the query, its documents, and their ids if they have any
EPILOG = """examples:
  pyramid-bert rerank my-reranker --query "who made it?" --documents docs.jsonl --top-k 10
  pyramid-bert rerank my-reranker --query "who made it?" --documents docs.tsv.gz --json
  pyramid-bert rerank my-reranker --data candidates.jsonl --out ranked.jsonl
  pyramid-bert rerank my-reranker --data candidates.jsonl.gz --out ranked.parquet --top-k 100 --max-length 256"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("model", help="the folder of a reranker, pyramid or dense")
    parser.add_argument("--query", metavar="TEXT", help="rank documents for this query")
    parser.add_argument("--documents", metavar="FILE", help="the documents: a file with the column `text`")
    parser.add_argument("--data", metavar="FILE", help="rank the candidates of each query in this file instead")
    parser.add_argument("--out", metavar="FILE", help="write the ranked rows here: .jsonl (with .gz) or .parquet")
    parser.add_argument("--top-k", type=int, default=10, metavar="K", help="the best documents only (default: 10)")
    options.add_restart_option(parser)
    parser.add_argument("--batch-size", type=int, default=32, metavar="N", help="documents at a time (default: 32)")
    options.add_max_length_option(parser)
    options.add_speed_option(parser)
    options.add_optimize_option(parser)
    group = parser.add_argument_group("columns")
    group.add_argument("--text-column", default="text", metavar="NAME", help="of --documents: the text")
    group.add_argument("--query-column", default="query", metavar="NAME", help="of --data: the query")
    group.add_argument("--documents-column", default="documents", metavar="NAME", help="of --data: its documents")
    options.add_device_option(parser)
    options.add_json_option(parser)


def run(args: argparse.Namespace) -> None:
    """Ranks, and prints or writes."""
    _check_call(args)
    if args.data:
        _rank_file(args)
    else:
        _rank_documents(args)


def _rank_documents(args: argparse.Namespace) -> None:
    from ..ranking.files import check_list
    from ..text.tables import iterate_rows, text_in

    path = Path(args.documents)
    rows = [(number, dict(row)) for number, row in iterate_rows(path)]
    texts = [text_in(row, args.text_column, None, f"{path}, row {number}") for number, row in rows]
    query, documents = check_list(args.query, texts)
    reranker = _load(args)
    for place, hit in enumerate(reranker.rank(query, documents, args.top_k, batch_size=args.batch_size), start=1):
        if "id" in (row := rows[hit["corpus_id"]][1]):
            hit = {"id": row["id"], **hit}
        print(options.json_text(hit) if args.json else f"{place}\t{hit['score']:.4f}\t{_short(hit['text'])}")


def _rank_file(args: argparse.Namespace) -> None:
    from ..ranking.files import ranked_by
    from ..text.stream import check_output, read_chunks

    source = Path(args.data)
    check_output(source, Path(args.out))
    # Every row is read before the model is loaded: errors come before work.
    count = sum(len(_lists(chunk, args)) for chunk in read_chunks(source, CHUNK))
    if not count:
        raise DataError(f"{source} has no rows; give at least one query with its documents")
    record = _record(args)
    reranker = _load(args)
    with steps_shown("ranking", count) as advance:

        def ranked(rows: list[tuple[int, Mapping[str, Any]]]) -> list[dict[str, Any]]:
            lists = _lists(rows, args)
            scores = reranker.score_lists([one[:2] for one in lists], batch_size=args.batch_size)
            advance(len(rows))
            return [
                {_ADDED: [_hit(i, found[i], ids) for i in ranked_by(found)[: args.top_k]]}
                for (_, _, ids), found in zip(lists, (one.tolist() for one in scores), strict=True)
            ]

        write_rows(args, count, ranked, record, advance, chunk_size=CHUNK)


def _check_call(args: argparse.Namespace) -> None:
    """Raises for options that do not fit together, before anything is read."""
    if bool(args.query is not None) == bool(args.data):
        raise UsageError("give --query TEXT with --documents FILE, or --data FILE with --out FILE; not both")
    if (args.query is None) != (args.documents is None):
        raise UsageError("--query and --documents go together")
    if bool(args.data) != bool(args.out):
        raise UsageError("--data and --out go together")
    if args.restart and not args.out:
        raise UsageError("--restart goes with --out; only a run that writes a file can be resumed")
    for name in ("top_k", "batch_size"):
        if getattr(args, name) < 1:
            raise UsageError(f"--{name.replace('_', '-')} must be at least 1, got {getattr(args, name)}")


def _lists(rows: list[tuple[int, Mapping[str, Any]]], args: argparse.Namespace) -> list[List]:
    """The lists of some rows; raises for a row that cannot be ranked, or has a column that is to be added."""
    return [_list(row, f"{args.data}, row {number}", args) for number, row in rows]


def _list(row: Mapping[str, Any], where: str, args: argparse.Namespace) -> List:
    from ..ranking.files import check_list
    from ..text.tables import cell_in

    if _ADDED in row:
        raise DataError(f"{where}: has a column {_ADDED!r}, which is to be added; rename it")
    query, given = cell_in(row, args.query_column, where), cell_in(row, args.documents_column, where)
    if not isinstance(given, list):
        raise DataError(f"{where}: column {args.documents_column!r} must hold a list of texts, got {shown(given)}")
    named = bool(given) and isinstance(given[0], Mapping)
    if named and not all(isinstance(one, Mapping) and {"id", "text"} <= one.keys() for one in given):
        raise DataError(f'{where}: give every document as a text, or every one as {{"id": ..., "text": ...}}')
    try:
        query, documents = check_list(query, [one["text"] for one in given] if named else given)
    except DataError as error:
        raise DataError(f"{where}: {error}") from error
    return query, documents, [one["id"] for one in given] if named else None


def _hit(place: int, score: float, ids: list[Any] | None) -> dict[str, Any]:
    hit = {"corpus_id": place, "score": score}
    return hit if ids is None else {"id": ids[place], **hit}


def _load(args: argparse.Namespace) -> PyramidReranker:
    from ..reranker import PyramidReranker, saved_activation

    activation = saved_activation(args.model)
    return PyramidReranker(options.load_classifier(args), activation=activation)


def _record(args: argparse.Namespace) -> dict[str, Any]:
    """What a stopped run must have in common with this one to be resumed: all that the scores depend on."""
    return {
        "model": digests(args.model)[0],
        **{f"--{name}": getattr(args, name.replace("-", "_")) for name in _RESULT_OPTIONS},
        "version of pyramid-bert": __version__,
    }


def _short(text: str) -> str:
    text = printable(text)
    return text if len(text) <= 80 else text[:79] + "…"
