"""``perfmodel chip``: tables on the cores of one chip, and ``perfmodel chips``, what is shipped."""
