"""Tables on one many-core chip: how each is looked up, by which core, and the time of a batch.

Memories: GM, global memory; L1, a core's local buffer; UB, its vector buffer. A ``Way`` is how one core looks
up a table, named by these memories: GM-UB streams a table from GM through UB.
"""
