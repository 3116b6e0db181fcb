"""What of PyTorch Geometric is explained exactly and what is refused: every layer and model, tried out."""
