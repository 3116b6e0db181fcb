"""GOAt's speed and memory beside other methods': ``python -m benchmarks speed``."""

from benchmarks.speed.options import Options, parse
from benchmarks.speed.run import main, run

__all__ = ["Options", "main", "parse", "run"]
