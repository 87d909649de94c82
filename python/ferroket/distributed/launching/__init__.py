"""Starting a job on this node: the command ``ferroket launch``."""
