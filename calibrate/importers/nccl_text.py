"""Reads output of nccl-tests (``all_gather_perf -b 8 -e 1G -f 2``): old and new layouts, several runs.

    # nccl-tests version 2.18.3 nccl-headers=23003 nccl-library=23003      (new)
    # Collective test starting: alltoall_perf                              (new)
    # nThread 1 nGpus 1 minBytes 8 maxBytes 1073741824 … graph: 0
    #  Rank  0 Group  0 Pid 50292 on node-1 device  0 [0000:0f:00] NVIDIA H200
    rccl-tests: Version develop:33cc4df · RCCL version : 2.27.7-HEAD:0d2c4fd             (RCCL, for "NCCL")
    #       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw …
       1048576        262144     float    none      -1    12.34   84.97   74.35       0    12.50   83.89 …

The header names the columns, so a layout without ``root`` or with a time stamp is read in the same way.
The line above it names the halves; without it the first is out of place. Sizes: bytes of one rank's buffer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from calibrate.importers.logged_rows import (
    CUT,
    OK,
    SINGLE_PROCESS,
    Line,
    LoggedRow,
    LoggedRun,
    Reading,
    UnreadLine,
    collect,
    describe_gpus,
    parse_printed,
    parse_row,
    split_labels,
    spread_ranks,
)

_RANK = re.compile(
    r"#[ \t]*Rank[ \t]+(\d{1,7})[ \t]+(?:Group[ \t]+(\d{1,7})[ \t]+)?Pid[ \t]+\S+[ \t]+on[ \t]+(\S+)[ \t]+"
    r"device[ \t]+\d{1,5}[ \t]+\[([^\]\n]*)\][ \t]*(.*)"
)
_LIBRARY = re.compile(r"#.*\bnccl-tests version\b.*\bnccl-library=(\d{1,7})\b")
_STARTING = re.compile(r"#[ \t]*Collective test starting:[ \t]*(\S+)")
_OPTIONS = re.compile(
    r"#[ \t]*nThread[ \t]+\d{1,5}[ \t]+nGpus[ \t]+(\d{1,5})\b(?:.*\bgraph:[ \t]*(\d{1,5}))?"
)
_BEGINNINGS = (re.compile(r"#.*\bnccl-tests version\b"), _STARTING, _OPTIONS)
_VERSION = re.compile(r"\b([NR]CCL) version(?: :)? (\d{1,3}(?:\.\d{1,3}){1,3})|rccl-tests: Version")
_END = re.compile(r"#.*(?:Avg bus bandwidth|Out of bounds values|test concluded)")
_COMMAND = re.compile(r"\b([a-z_]+_perf)\b")
_CHECKS = ("#wrong", "wrong", "error")
_UNTABLED = {
    13: "size count type redop root time algbw busbw #wrong time algbw busbw #wrong",
    12: "size count type redop time algbw busbw #wrong time algbw busbw #wrong",
}


class _Table(NamedTuple):
    """The head of a table: its columns, where the second half's time stands, which halves are in place."""

    columns: Sequence[str] = ()
    second: int = 0
    places: Sequence[bool] = ()


def read_nccl_text(text: str, file: str) -> Reading:
    """All rows of a nccl-tests log; never raises on any text."""
    lines = [
        line._replace(text=line.text.replace(label, " ")) if label[-1:] in tuple("]>:|)") else line
        for label, line in split_labels(text, file)
    ]
    items: list[LoggedRow | UnreadLine] = []
    cut, command = False, ""
    for section in _split_runs(lines):
        run, command = _describe_run(section, command)
        items += _rows(section, run)
        said = "\n".join(line.text for line in section)
        cut = cut or (bool(_OPTIONS.search(said) or _STARTING.search(said)) and not _END.search(said))
    return collect(items, cut=cut)


def _split_runs(lines: Sequence[Line]) -> list[list[Line]]:
    """The lines of each run. A run begins where a line of its header repeats, or follows rows."""
    sections: list[list[Line]] = [[]]
    seen: set[object] = set()
    for line in lines:
        kind = next((pattern for pattern in _BEGINNINGS if pattern.search(line.text)), None)
        if kind and (kind in seen or "row" in seen):
            sections.append([])
            seen = set()
        seen |= {kind} if kind else {"row"} if _looks_like_data(line.text.split()) else set()
        sections[-1].append(line)
    return sections


def _describe_run(section: Sequence[Line], command: str) -> tuple[LoggedRun, str]:
    """(what the headers of a run say, the last command in it). command  the last one before the run"""
    text = "\n".join(line.text for line in section)
    rows = [place for place, line in enumerate(section) if _looks_like_data(line.text.split())]
    before = [command, *_commands(section[: rows[0]] if rows else section)]
    code, starting, options = (pattern.search(text) for pattern in (_LIBRARY, _STARTING, _OPTIONS))
    libraries = _VERSION.findall(text)
    versions = [version_from_code(int(code.group(1)))] if code else [version for _, version in libraries]
    clock = "" if options is None else "graph" if int(options.group(2) or 0) > 0 else "stream"
    run = replace(
        _describe_ranks(_RANK.findall(text), any(name != "NCCL" for name, _ in libraries)),
        operation_text=starting.group(1) if starting else before[-1],
        library_version=next(filter(None, versions), ""),
        clock="eager" if "Blocking Enabled" in text else clock,
        flag=SINGLE_PROCESS if options and int(options.group(1)) > 1 else OK,
        number=section[0].line_no if section else 0,
    )
    return run, [command, *_commands(section)][-1]


def _commands(lines: Sequence[Line]) -> list[str]:
    """Names of tests in lines that are neither rows nor remarks, such as ``mpirun … all_gather_perf``."""
    plain = (line.text for line in lines if line.text.lstrip()[:1] not in tuple("#0123456789"))
    return [name for text in plain for name in _COMMAND.findall(text)[:1]]


def version_from_code(code: int) -> str:
    """Version from a number: ``23003`` -> 2.30.3; before NCCL 2.9 it had one digit less (2804 -> 2.8.4)."""
    if code >= 10000:
        return f"{code // 10000}.{code % 10000 // 100}.{code % 100}"
    return f"{code // 1000}.{code % 1000 // 100}.{code % 100}"


def _describe_ranks(ranks: Sequence[tuple[str, ...]], rccl: bool) -> LoggedRun:
    """A run of which only the 'Rank' lines are known: (rank, group, host, bus, GPU) of each.

    rccl  whether a line shows that the library is RCCL
    Limits: a list that is cut -> no numbers: bandwidths and options say them
    """
    run = describe_gpus((name for *_, name in ranks), "rccl" if rccl else "nccl")
    count = max((int(rank) for rank, *_ in ranks), default=-1) + 1
    if len({int(group or 0) for _, group, *_ in ranks}) > 1:
        several = "several communicators ran at once (more than one 'Group'): not the time of one"
        return replace(run, trouble=several)
    if not ranks or len(ranks) < count:
        return run
    per_node, trouble = spread_ranks(Counter(host for _, _, host, *_ in ranks))
    if len({(host, bus) for _, _, host, bus, _ in ranks}) < len(ranks):
        trouble = "two ranks share one GPU: such times say nothing about a network"
    if len(ranks) > count:
        trouble = f"{len(ranks)} 'Rank' lines for {count} ranks: the list is repeated"
    return replace(run, gpus=len(ranks), gpus_per_node=per_node, trouble=run.trouble or trouble)


def _rows(section: Sequence[Line], run: LoggedRun) -> Iterator[LoggedRow | UnreadLine]:
    """The rows of a run, and the lines that look like a row and are none."""
    table = _Table()
    for line in section:
        words = line.text.strip().lstrip("#").split()
        if line.text.lstrip().startswith("#"):
            if "size" in words and "busbw" in words:
                table = table._replace(columns=words, second=line.text.rfind("time"))
            elif words and set(words) <= {"in-place", "out-of-place"}:
                table = table._replace(places=[word == "in-place" for word in words])
        elif _looks_like_data(words):
            untabled = _UNTABLED.get(len(words), "").split()
            yield from _halves(line, run, table if table.columns else _Table(untabled))
        elif table.columns and _looks_broken(words):
            yield line.refuse("part of a row that other output broke")


def _looks_like_data(tokens: Sequence[str]) -> bool:
    """Whether a line has a size first and numbers after it, one of them with a decimal point or NaN."""
    if len(tokens) < 4 or not tokens[0].lstrip("+-").isdigit():
        return False
    return sum(map(_is_cell, tokens)) >= len(tokens) / 2


def _looks_broken(tokens: Sequence[str]) -> bool:
    """Whether a line is the start of a row (size, count and type), or its end (nothing but numbers)."""
    if len(tokens) < 3 or tokens[0].isdigit():
        return len(tokens) > 2 and tokens[1].isdigit() and tokens[2].isalnum()
    return "." in tokens[0] and all(map(_is_cell, tokens))


def _is_cell(text: str) -> bool:
    return parse_printed(text) is not None or text.upper() == "N/A"


def _halves(line: Line, run: LoggedRun, table: _Table) -> Iterator[LoggedRow | UnreadLine]:
    """The halves of a line, out of place and in place, as rows or with the reason why they are none."""
    columns, tokens = table.columns, _fill_blanks(line.text, table)
    times = [place for place, name in enumerate(columns) if name in ("time", "cputime")]
    if not times or "size" not in columns[: times[0]]:
        yield line.refuse("no column header before it")
        return
    if "cputime" in columns:
        yield line.refuse("CPU time (-C): the time to enqueue, not to run")
        return
    if len(tokens) != len(columns) and not ("timestamp" in columns and len(tokens) == len(columns) + 1):
        yield line.refuse(f"{len(tokens)} columns where the header has {len(columns)}: {CUT}")
        return
    places = table.places if len(table.places) == len(times) else [False, True]
    for in_place, start in zip(places, times, strict=False):
        if not tokens[start]:
            continue
        check = "".join(columns[start + 3 : start + 4])
        names = [*columns[:start], "time", "algbw", "busbw", *(["wrong"] if check in _CHECKS else [])]
        cells = dict(zip(names, tokens, strict=False)) | {"inplace": str(int(in_place))}
        if check == "error" and parse_printed(cells["wrong"]):
            cells["wrong"] = "0"  # old layout: the largest rounding error, no count
        row = parse_row(run, cells, line)
        whole = isinstance(row, UnreadLine) or (row.algbw is not None and row.busbw is not None)
        yield row if whole else line.refuse("a bandwidth is not a number")


def _fill_blanks(text: str, table: _Table) -> list[str]:
    """The cells of a row, "" where the table has a blank: the reduction (2020 to 2022), or the first half."""
    tokens, columns = text.split(), list(table.columns)
    missing, redop = len(columns) - len(tokens), columns.index("redop") if "redop" in columns else 0
    if 0 < redop < len(tokens) and missing == 1 and parse_printed(tokens[redop]):
        return [*tokens[:redop], "", *tokens[redop:]]
    if columns.count("time") == 2:
        start = columns.index("time")
        ends = [match.end() for match in re.finditer(r"\S+", text)]
        if 2 * missing == len(columns) - start and ends[start] > table.second:
            return [*tokens[:start], *[""] * missing, *tokens[start:]]
    return tokens
