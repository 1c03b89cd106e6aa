"""Plans that TorchRec runs, and the files that it reads and prints."""
