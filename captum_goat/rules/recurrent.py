"""Rules for recurrent cells and networks: sigmoid and tanh are gates, the rest are sums and products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from captum_goat.rules.activations import gated
from captum_goat.rules.activations import relu as gated_relu
from captum_goat.rules.operations import Arguments, Keywords
from captum_goat.rules.registry import Keep, Rule, register

State = tuple[Tensor, ...]  # the hidden state; of an LSTM that and the cell state
Weights = Sequence[Tensor | None]  # of the input and of the state, and their biases


def _sigmoid(keep: Keep, value: Tensor) -> Tensor:
    return gated(keep, torch.sigmoid, (value,), {}, smooth=True)


def _tanh(keep: Keep, value: Tensor) -> Tensor:
    return gated(keep, torch.tanh, (value,), {}, passes_zero=True)


def _linear(input: Tensor, state: State, weights: Weights) -> tuple[Tensor, Tensor]:
    of_input, of_state, bias, state_bias = (*weights, None, None)[:4]
    assert of_input is not None
    assert of_state is not None
    return F.linear(input, of_input, bias), F.linear(state[0], of_state, state_bias)


def _gru(keep: Keep, input: Tensor, state: State, weights: Weights) -> State:
    ours, its = (part.chunk(3, -1) for part in _linear(input, state, weights))
    reset, update = (_sigmoid(keep, ours[k] + its[k]) for k in (0, 1))
    new = _tanh(keep, ours[2] + reset * its[2])
    return (new + update * (state[0] - new),)


def _lstm(keep: Keep, input: Tensor, state: State, weights: Weights) -> State:
    ours, its = _linear(input, state, weights)
    enter, forget, new, out = (ours + its).chunk(4, -1)
    cell = _sigmoid(keep, forget) * state[1] + _sigmoid(keep, enter) * _tanh(keep, new)
    return _sigmoid(keep, out) * _tanh(keep, cell), cell


def _rnn_tanh(keep: Keep, input: Tensor, state: State, weights: Weights) -> State:
    return (_tanh(keep, sum(_linear(input, state, weights))),)  # type: ignore[arg-type]


def _rnn_relu(keep: Keep, input: Tensor, state: State, weights: Weights) -> State:
    return (gated_relu(keep, torch.relu, (sum(_linear(input, state, weights)),), {}),)


Step = Callable[[Keep, Tensor, State, Weights], State]


def _cell(step: Step) -> Rule:
    def rewrite(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Any:
        input, state, *weights = args
        after = step(keep, input, (state,) if isinstance(state, Tensor) else tuple(state), weights)
        return after if len(after) > 1 else after[0]

    return Rule(rewrite)


def _network(step: Step) -> Rule:
    def rewrite(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Any:
        input, state, parameters, has_biases, num_layers, _, _, bidirectional, batch_first = args
        states = (state,) if isinstance(state, Tensor) else tuple(state)
        count = 4 if has_biases else 2
        weights = [parameters[k : k + count] for k in range(0, len(parameters), count)]
        directions, final = (2 if bidirectional else 1), list[State]()
        outputs = list(input.unbind(1 if batch_first else 0))
        for layer in range(num_layers):
            both = []
            for number in range(layer * directions, (layer + 1) * directions):
                backwards, current = number % directions == 1, tuple(state[number] for state in states)
                hidden = []
                for entry in outputs[::-1] if backwards else outputs:
                    current = step(keep, entry, current, weights[number])
                    hidden.append(current[0])
                both.append(hidden[::-1] if backwards else hidden)
                final.append(current)
            outputs = [torch.cat(parts, -1) for parts in zip(*both, strict=True)] if bidirectional else both[0]
        last = (torch.stack(parts) for parts in zip(*final, strict=True))
        return torch.stack(outputs, 1 if batch_first else 0), *last

    return Rule(rewrite, when=_is_plain)


def _is_plain(func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> bool:
    """Return whether the sequences are one tensor, there is no dropout, and states are not projected."""
    if len(args) != 9 or not isinstance(args[2], list | tuple) or (args[5] and args[6]):
        return False
    per_layer = (4 if args[3] else 2) * (2 if args[7] else 1)
    return bool(len(args[2]) == per_layer * args[4])


for _name, _step in {"gru": _gru, "lstm": _lstm, "rnn_tanh": _rnn_tanh, "rnn_relu": _rnn_relu}.items():
    register((getattr(torch, f"{_name}_cell"),), _cell(_step))
    register((getattr(torch, _name),), _network(_step))
