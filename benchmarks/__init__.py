"""The paper's experiments, all other explainers, speed, and the compatibility table; not installed."""
