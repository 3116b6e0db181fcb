"""From what users pass to graphs, masks and targets."""
