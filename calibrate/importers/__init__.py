"""Reads logs of other tools into samples: ``merge.import_logs``."""
