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
_COLUMNS = [*("size", "count", "type", "redop", "root"), *2 * ("time", "algbw", "busbw", "#wrong")]
"""Of a row of so many cells without a head."""
_COMMAND = re.compile(r"^.*?\b([a-z_]+_perf)\b", re.MULTILINE)


def read_nccl_text(text: str, file: str) -> logs.Reading:
    """All rows of a nccl-tests log, and whether a test's end is missing; never raises on any text."""
    items: list[logs.LoggedRow | logs.LogLine] = []
    cut = False
    command = ""
    for section in _split_runs(text, file):
        text = "\n".join(line.text for line in section)
        run, command = _describe_run(section, text, command)  # a command holds until another is named
        items += _rows(section, run)
        begun = _STARTING.search(text) or _OPTIONS.search(text)
        cut = cut or (begun is not None and not _END.search(text))
    return logs.collect(items, cut=cut)


def _split_runs(text: str, file: str) -> list[list[logs.LogLine]]:
    """The lines of each run. A run begins where a line of its header repeats, or follows rows."""
    sections: list[list[logs.LogLine]] = [[]]
    headers: set[re.Pattern[str] | None] = set()
    for label, line in logs.split_labels(text, file):
        if label.endswith(tuple("]>:|)")):  # a label may stand inside a row too
            line = line._replace(text=line.text.replace(label, " "))
        header = next((pattern for pattern in _BEGINNINGS if pattern.search(line.text)), None)
        if header in headers:
            sections.append([])
            headers = set()
        headers |= {header} if header else set()
        if logs.looks_like_row(line.text.split()):
            headers |= {*_BEGINNINGS}  # any of them is of the next run
        sections[-1].append(line)
    return [section for section in sections if section]


def _describe_run(section: Sequence[logs.LogLine], text: str, command: str) -> tuple[logs.LoggedRun, str]:
    """(what the headers of a run say, the last test that it names). command  the last one named before it"""
    rows = (place for place, line in enumerate(section) if logs.looks_like_row(line.text.split()))
    head = "\n".join(line.text for line in section[: next(rows, len(section))])
    command = [command, *_COMMAND.findall(head)][-1]
    tests = _TESTS.search(text)
    starting = _STARTING.search(text)
    options = _OPTIONS.search(text)
    libraries = _LIBRARY.findall(text)
    versions = [version_from_code(int(tests.group(1)))] if tests and tests.group(1) else []
    versions += [version for _, version in libraries if version]
    clock = "" if options is None else "stream" if options.group(2) in (None, "0") else "graph"
    run = replace(
        describe_ranks(_RANK.findall(text), any(name != "NCCL" for name, _ in libraries)),
        operation_text=starting.group(1) if starting else command,
        library_version=versions[0] if versions else "",
        clock="eager" if "Blocking Enabled" in text else clock,
        flag=logs.SINGLE_PROCESS if options and int(options.group(1)) > 1 else logs.OK,
        number=section[0].line_no,
    )
    return run, command


def version_from_code(code: int) -> str:
    """Version from a number: ``23003`` -> 2.30.3; before NCCL 2.9 it had one digit less (2804 -> 2.8.4)."""
    digits = 10000 if code // 10000 else 1000
    return f"{code // digits}.{code % digits // 100}.{code % 100}"


def describe_ranks(ranks: Sequence[tuple[str, ...]], rccl: bool) -> logs.LoggedRun:
    """A run of which only the 'Rank' lines are known: (rank, group, host, bus, GPU) of each.

    rccl  whether a line shows that the library is RCCL
    Limits: a list that ends too early -> no number of ranks: the user's options give it
    """
    run = logs.describe_gpus((name for *_, name in ranks), "rccl" if rccl else "nccl")
    if len({group for _, group, *_ in ranks}) > 1:
        return replace(run, trouble="several communicators ran at once (more than one 'Group')")
    if not ranks or len(ranks) <= max(int(rank) for rank, *_ in ranks):
        return run
    trouble = ""
    per_node = sorted(Counter(host for _, _, host, *_ in ranks).values())
    if per_node[0] != per_node[-1]:
        trouble = f"ranks are spread unevenly over the nodes ({', '.join(map(str, per_node))})"
    if len({(host, bus) for _, _, host, bus, _ in ranks}) < len(ranks):
        trouble = "two ranks share one GPU, or the list of ranks is repeated"
    return replace(run, gpus=len(ranks), gpus_per_node=per_node[0], trouble=run.trouble or trouble)


def _rows(section: Sequence[logs.LogLine], run: logs.LoggedRun) -> Iterator[logs.LoggedRow | logs.LogLine]:
    """The rows of a run's table, two a line, and the lines that look like a row and are none."""
    columns: list[str] = []
    head = ""  # its last "time" stands where the second half of a line begins
    places = [False, True]  # which halves are in place
    for line in section:
        words = line.text.strip().lstrip("#").split()
        if line.text.lstrip().startswith("#"):
            if {"size", "busbw"}.issubset(words):
                columns = words
                head = line.text
            elif words and set(words).issubset(("in-place", "out-of-place")):
                places = [word == "in-place" for word in words]
        elif not logs.looks_like_row(words):
            if columns and _looks_broken(words):
                yield line.refuse("part of a row that other output broke")
        elif not {"size", "time"}.issubset(columns) and (columns or len(words) != len(_COLUMNS)):
            yield line.refuse("no header with the columns size and time before it")
        else:
            columns = columns or _COLUMNS
            if "redop" in columns and len(words) == len(columns) - 1:  # blank from 2020 to 2022
                words.insert(columns.index("redop"), "")
            first = columns.index("time")
            half = columns[::-1].index("time") + 1  # cells of a half: the last "time" and those behind it
            blank = len(words) == len(columns) - half and words[first] in line.text[head.rfind("time") - 4 :]
            shape = columns[:first] + columns[-half:] if blank else columns  # without its first half
            if len(words) - ("timestamp" in columns) == len(shape):  # a date and a time
                yield from _halves(line, run, shape, words, places[1:] if blank else places)
            else:
                yield line.refuse(f"{len(words)} columns where the header has {len(shape)}: {logs.CUT}")


def _looks_broken(cells: Sequence[str]) -> bool:
    """Whether a line is the start of a row (size, count and type), or its end (nothing but numbers)."""
    if not cells[2:] or cells[0].isdigit():
        return bool(cells[2:]) and cells[1].isdigit() and cells[2].isalnum()
    return "." in cells[0] and all(map(logs.is_numeric, cells))


def _halves(
    line: logs.LogLine, run: logs.LoggedRun, columns: list[str], cells: list[str], places: list[bool]
) -> Iterator[logs.LoggedRow | logs.LogLine]:
    """Out-of-place and in-place halves of a line, as rows or why they are none. places  in place or not"""
    times = [place for place, name in enumerate(columns) if name == "time"]
    common = dict(
        zip(columns[: columns.index("time")], cells, strict=False)
    )  # size, type …, before both halves
    for in_place, start in zip(places, times, strict=False):
        half = dict(zip(("time", "algbw", "busbw"), [*cells[start:], "", ""], strict=False))
        checks = dict(zip(columns[start + 3 : start + 4], cells[start + 3 :], strict=False))
        check = checks.get(
            "#wrong", "N/A" if checks.get("error") == "N/A" else "0"
        )  # older logs have the largest error of rounding instead: nothing is wrong
        rest = {"wrong": check, "inplace": str(int(in_place))}
        yield logs.parse_row(run, common | half | rest, line)
