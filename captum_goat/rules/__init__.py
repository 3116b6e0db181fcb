"""How operations that are not linear enter the gated replay: the register of rules, open to your own.

GOAt needs a model that is a polynomial of its variables once some numbers are frozen. A rule rewrites an operation in
such a way. There are two kinds of frozen numbers:

- *gates*, which are variables: every scalar product in which one takes part is shared with it, and its share goes to
  the edges in its receptive field;
- *frozen factors*, which are constants, like degree normalisation: the scale of a norm, the winner of a maximum, the
  coefficients of attention.

One line gives an operation of your own (a ``torch.nn.Module`` class, or a function of torch) a rule::

    >>> import torch
    >>> from captum_goat import rules
    >>> class Snake(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x + torch.sin(x) ** 2
    >>> rules.gate(Snake)  # element-wise: out = P * in
    >>> rules.forget(Snake)

:func:`gate` is for element-wise activations, :func:`scale` for norms that only scale, :func:`freeze` for attention
coefficients. For anything else decorate a function with :func:`rule`, which writes the operation as sums and products
of its inputs and of numbers that it keeps. :func:`message` declares messages that a model passes by its own code.
"""

from captum_goat.rules import choices, products, recurrent  # noqa: F401 (registers the rules of torch)
from captum_goat.rules.activations import gate
from captum_goat.rules.attention import freeze
from captum_goat.rules.messages import message
from captum_goat.rules.norms import scale
from captum_goat.rules.registry import Keep, Rule, forget, rule

__all__ = ["Keep", "Rule", "forget", "freeze", "gate", "message", "rule", "scale"]
