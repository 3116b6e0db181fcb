"""``python -m captum_goat``: the console script ``captum-goat``."""

from __future__ import annotations

import sys

from captum_goat.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
