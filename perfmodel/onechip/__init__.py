"""Tables on one many-core chip: how each is looked up, by which core, and the time of a batch.

Memories: GM, global memory; L1, a core's local buffer; UB, its vector buffer. A way to look up (``Way``) is
named by them: GM-UB streams a table from GM through UB.
"""
