"""What long runs need: progress bars, and digests of models and data."""
