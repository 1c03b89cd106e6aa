"""The page of ``perfmodel report``: a single file that opens from disk without a network."""
