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
from dataclasses import dataclass, field, replace

from calibrate.importers import logged_rows as logs

_RANK = re.compile(
    r"#[ \t]*Rank[ \t]+(\d{1,7})[ \t]+(?:Group[ \t]+(\d{1,7})[ \t]+)?Pid[ \t]+\S+[ \t]+on[ \t]+(\S+)[ \t]+"
    r"device[ \t]+\d{1,5}[ \t]+\[([^\]\n]*)\][ \t]*(.*)"
)
_TESTS = re.compile(r"#.*\bnccl-tests version\b(?:.*\bnccl-library=(\d{1,7})\b)?")
_STARTING = re.compile(r"#[ \t]*Collective test starting:[ \t]*(\S+)")
_OPTIONS = re.compile(
    r"#[ \t]*nThread[ \t]+\d{1,5}[ \t]+nGpus[ \t]+(\d{1,5})\b(?:.*\bgraph:[ \t]*(\d{1,5}))?"
)
_BEGINNINGS = (_TESTS, _STARTING, _OPTIONS)
_LIBRARY = re.compile(r"\b([NR]CCL) version(?: :)? (\d{1,3}(?:\.\d{1,3}){1,3})|rccl-tests: Version")
_END = re.compile(r"#.*(?:Avg bus bandwidth|Out of bounds values|test concluded)")
_COMMAND = re.compile(r"\b([a-z_]+_perf)\b")
_COLUMNS = [*("size", "count", "type", "redop", "root"), *2 * ("time", "algbw", "busbw", "#wrong")]
"""Of a row of so many cells without a head."""
_CHECKS = ("#wrong", "wrong", "error")


@dataclass
class _Section:
    """Lines of one run, and whether each looks like a row; kinds of header lines seen so far."""

    lines: list[tuple[logs.LogLine, bool]] = field(default_factory=list)
    headers: set[re.Pattern[str]] = field(default_factory=set)

    @property
    def has_rows(self) -> bool:
        """Whether a line looks like a row."""
        return any(data for _, data in self.lines)


def read_nccl_text(text: str, file: str) -> logs.Reading:
    """All rows of a nccl-tests log; never raises on any text."""
    items: list[logs.LoggedRow | logs.LogLine] = []
    cut, command = False, ""
    for section in _split_runs(text, file):
        text = "\n".join(line.text for line, _ in section.lines)
        run, command = _describe_run(section, text, command)
        items += _rows(section, run)
        cut = cut or (bool(section.headers & {_OPTIONS, _STARTING}) and not _END.search(text))
    return logs.collect(items, cut=cut)


def _split_runs(text: str, file: str) -> list[_Section]:
    """The lines of each run. A run begins where a line of its header repeats, or follows rows."""
    sections = [_Section()]
    for label, line in logs.split_labels(text, file):
        if label[-1:] in tuple("]>:|)"):  # a label may stand inside a row too
            line = line._replace(text=line.text.replace(label, " "))
        header = next((pattern for pattern in _BEGINNINGS if pattern.search(line.text)), None)
        if header and (header in sections[-1].headers or sections[-1].has_rows):
            sections.append(_Section())
        sections[-1].headers |= {header} if header else set()
        sections[-1].lines.append((line, _looks_like_data(line.text.split())))
    return sections


def _describe_run(section: _Section, text: str, command: str) -> tuple[logs.LoggedRun, str]:
    """(what the headers of a run say, the last test that it names). command  the last one named before it"""
    for line, data in section.lines:
        if data:
            break
        command = next(iter(_COMMAND.findall(line.text)), command)
    tests, starting, options = _TESTS.search(text), _STARTING.search(text), _OPTIONS.search(text)
    libraries = _LIBRARY.findall(text)
    versions = [version for _, version in libraries if version]
    if tests and tests.group(1):
        versions.insert(0, version_from_code(int(tests.group(1))))
    clock = "" if options is None else "graph" if int(options.group(2) or 0) > 0 else "stream"
    run = replace(
        describe_ranks(_RANK.findall(text), any(name != "NCCL" for name, _ in libraries)),
        operation_text=starting.group(1) if starting else command,
        library_version=versions[0] if versions else "",
        clock="eager" if "Blocking Enabled" in text else clock,
        flag=logs.SINGLE_PROCESS if options and int(options.group(1)) > 1 else logs.OK,
        number=section.lines[0][0].line_no if section.lines else 0,
    )
    return run, command


def version_from_code(code: int) -> str:
    """Version from a number: ``23003`` -> 2.30.3; before NCCL 2.9 it had one digit less (2804 -> 2.8.4)."""
    digits = 10000 if code >= 10000 else 1000
    return f"{code // digits}.{code % digits // 100}.{code % 100}"


def describe_ranks(ranks: Sequence[tuple[str, ...]], rccl: bool) -> logs.LoggedRun:
    """A run of which only the 'Rank' lines are known: (rank, group, host, bus, GPU) of each.

    rccl  whether a line shows that the library is RCCL
    Limits: a list that is cut -> no numbers: options say them
    """
    run = logs.describe_gpus((name for *_, name in ranks), "rccl" if rccl else "nccl")
    count = max((int(rank) for rank, *_ in ranks), default=-1) + 1
    if len({int(group or 0) for _, group, *_ in ranks}) > 1:
        several = "several communicators ran at once (more than one 'Group'): not the time of one"
        return replace(run, trouble=several)
    if not ranks or len(ranks) < count:
        return run
    per_node, trouble = logs.spread_ranks(Counter(host for _, _, host, *_ in ranks))
    if len({(host, bus) for _, _, host, bus, _ in ranks}) < len(ranks):
        trouble = "two ranks share one GPU: such times say nothing about a network"
    if len(ranks) > count:
        trouble = f"{len(ranks)} 'Rank' lines for {count} ranks: the list is repeated"
    return replace(run, gpus=len(ranks), gpus_per_node=per_node, trouble=run.trouble or trouble)


def _rows(section: _Section, run: logs.LoggedRun) -> Iterator[logs.LoggedRow | logs.LogLine]:
    """The rows of a run, and the lines that look like a row and are none."""
    columns: list[str] = []
    second = 0  # where the second half begins in a line
    places = [False, True]  # which halves are in place
    for line, data in section.lines:
        words = line.text.strip().lstrip("#").split()
        if line.text.lstrip().startswith("#"):
            if "size" in words and "busbw" in words:
                columns, second = words, line.text.rfind("time")
            elif words and set(words) <= {"in-place", "out-of-place"}:
                places = [word == "in-place" for word in words]
        elif data:
            if "redop" in columns and len(words) == len(columns) - 1:  # blank from 2020 to 2022
                words.insert(columns.index("redop"), "")
            shape, here = columns, places
            first, half = (columns.index("time"), columns[::-1].index("time") + 1) if second else (0, 0)
            if 0 < len(words) == len(columns) - half and line.text.find(words[first], second - 4) > 0:
                shape, here = columns[:first] + columns[-half:], places[1:]  # the first half is blank
            untabled = _COLUMNS if not columns and len(words) == len(_COLUMNS) else shape
            yield from _halves(line, run, untabled, words, here)
        elif columns and _looks_broken(words):
            yield line.refuse("part of a row that other output broke")


def _looks_like_data(cells: Sequence[str]) -> bool:
    """Whether a line has a size first and numbers after it."""
    if len(cells) < 4 or not cells[0].lstrip("+-").isdigit():
        return False
    numbers = [cell for cell in cells if logs.parse_printed(cell) or cell.upper() == "N/A"]
    return len(numbers) >= len(cells) / 2


def _looks_broken(cells: Sequence[str]) -> bool:
    """Whether a line is the start of a row (size, count and type), or its end (nothing but numbers)."""
    if len(cells) < 3 or cells[0].isdigit():
        return len(cells) > 2 and cells[1].isdigit() and cells[2].isalnum()
    return "." in cells[0] and all(logs.parse_printed(cell) or cell.upper() == "N/A" for cell in cells)


def _halves(
    line: logs.LogLine,
    run: logs.LoggedRun,
    columns: Sequence[str],
    cells: Sequence[str],
    places: Sequence[bool],
) -> Iterator[logs.LoggedRow | logs.LogLine]:
    """The halves of a line, out of place and in place, as rows or with the reason why they are none."""
    times = [place for place, name in enumerate(columns) if name == "time"]
    if "cputime" in columns:
        yield line.refuse("CPU time (-C): the time to enqueue, not to run")
    elif not times or "size" not in columns[: times[0]]:
        yield line.refuse("no column header before it")
    elif len(cells) != len(columns) and not ("timestamp" in columns and len(cells) == len(columns) + 1):
        yield line.refuse(f"{len(cells)} columns where the header has {len(columns)}: {logs.CUT}")
    else:
        for in_place, start in zip(
            places if len(places) == len(times) else (False, True), times, strict=False
        ):
            check = "".join(columns[start + 3 : start + 4])
            names = [*columns[: times[0]], "time", "algbw", "busbw", *(["wrong"] if check in _CHECKS else [])]
            texts = [*cells[: times[0]], *cells[start : start + 4]]
            named = dict(zip(names, texts, strict=False)) | {"inplace": str(int(in_place))}
            if check == "error" and logs.parse_printed(named["wrong"]):
                named["wrong"] = "0"  # old layout: the largest rounding error, no count
            row = logs.parse_row(run, named, line)
            whole = isinstance(row, logs.LogLine) or (row.algbw is not None and row.busbw is not None)
            yield row if whole else line.refuse("a bandwidth is not a number")
