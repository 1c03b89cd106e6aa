"""``perfmodel chip``: tables on the cores of one chip; and ``perfmodel chips``: the shipped chips."""
