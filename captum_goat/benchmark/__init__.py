"""Side-by-side comparisons of explainers."""
