"""What long runs need: progress bars, files that appear only when complete, digests of models and data."""
