"""GOAt's speed and memory beside other methods': ``python -m captum_goat.benchmark speed``."""

from captum_goat.benchmark.speed.options import Options, parse
from captum_goat.benchmark.speed.run import main, run

__all__ = ["Options", "main", "parse", "run"]
