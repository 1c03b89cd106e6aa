"""Identity of this machine, and the measurements that are possible on it."""
