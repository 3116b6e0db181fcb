"""Random models and graphs, explained by the package and by a slow referee that knows nothing of the package.

A :class:`~fuzz.case.Case` is plain data. ``program`` writes it as Python code that builds the real model, ``referee``
evaluates the same data by the definitions, ``check`` compares the two, ``shrink`` makes a failing case small.
``python -m tests.fuzz --cases 10000 --seed 0`` runs any number of cases;
``--extended`` draws edge attributes, divisors and exponentials that are frozen, and GRU cells, too.
"""
