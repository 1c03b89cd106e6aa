"""``python -m perfmodel`` is ``perfmodel``."""

from perfmodel.cli import main

main()
