"""Models as people write them, after public architectures: each is explained exactly or refused by name."""
