"""``perfmodel doctor`` on the machine that runs the tests."""

from __future__ import annotations

import json

import pytest

from perfmodel.cli import run


def test_the_command_on_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--ranks", "100000", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema_version"], document["command"]) == (3, "doctor")
    assert {"mpi", "nccl", "torch"} <= {item["name"] for item in document["libraries"]}
    assert "cores" in {item["name"] for item in document["warnings"]}
