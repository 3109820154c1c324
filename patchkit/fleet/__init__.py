"""The same patch on every node of a Ray cluster, proved."""
