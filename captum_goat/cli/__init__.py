"""The console script ``captum-goat``."""
