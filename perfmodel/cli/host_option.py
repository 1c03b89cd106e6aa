"""``--host``: whether the launch time of PyTorch is added to the answer."""

from __future__ import annotations

from perfmodel.cli.options import apart


def check_host(host: str | None, **others: object) -> None:
    """Check the value of ``--host``.

    others  options by name whose output leaves out the host
    Limits: an unknown value, or such an option -> BadInputError
    """
    if host is None:
        return
    from perfmodel.projections.hosted import split_host

    split_host(host)
    apart("--host", host, "the host is counted on the screen and with --json.", **others)
