"""The page of ``perfmodel report``: one file that opens from disk and asks no network for anything."""
