r"""GOAt itself, in five files named after its steps. This page explains the method and follows one call.

**The method.** For one sample, every activation is ``out = P * in``; the entries of P are the *gates*. With the gates
frozen the output is a polynomial, a sum of scalar products of edges, gates and constants. GOAt shares every scalar
product equally among its edges and gates, gives what lands on a gate to the edges in the gate's receptive field, and
subtracts what the gates contribute without any edge. Attributions then add up to f(graph) - f(no edges).

**No product is ever written down.** When all variables are scaled by t, a product with c variables becomes
:math:`z\,t^c`, so the share of a variable v is :math:`\int_0^1 v\,\partial F/\partial v\,dt`, with F the *gated
replay*: the user's own model, in which every activation returns ``t * P * in`` and every message is multiplied by
``t * mask``. The integrand is a polynomial of known degree: a few points of Gauss-Legendre quadrature are exact.

**The steps**, one file each:

1. :mod:`~captum_goat.method.record`: one forward pass. The rules (:mod:`captum_goat.rules`) say which values of it are
   frozen, and :mod:`captum_goat.tracking` which rows of which tensor read which.
2. :mod:`~captum_goat.method.replay`: the same pass with gates frozen and variables scaled by t.
3. :mod:`~captum_goat.method.share`: the shares of edges, features and gates, by quadrature over replays.
4. :mod:`~captum_goat.method.spread`: the gates' shares to the edges of their receptive fields.
5. :mod:`~captum_goat.method.explain`: record, share, spread, calibrate, check.

**One call** of ``GOAtAttribution(model).attribute(mask, target, (x, edge_index, batch))``, from the outside to the
inside (a function is called by the one above it that is indented less)::

    attribution.py                   GOAtAttribution.attribute
    wrapped_model.py                   ExplainedModel.request
    inputs/request.py                    split_inputs
    inputs/graph_inputs.py               GraphInputs.of
    method/explain.py                  recorded_explanations
    method/explain.py                    GraphExplanation.record
    method/record.py                       record
    adjacency/mask_entry.py                  AtMessages.on_message
    tracking/edge_tracker.py                   EdgeTracker.follow
    hooks/interception.py                    intercepted
    tracking/row_tracker.py                    RowTracker.__torch_dispatch__
    rules/registry.py                          Rule.rewrite_for
    rules/activations.py                       relu
    inputs/targets.py                      find_target
    method/spread.py                       owners_of
    method/spread.py                       find_fields
    method/explain.py                  GraphExplanation.attribute
    method/replay.py                     ActivationPattern.at_zero
    method/share.py                      contributions
    rules/quadrature.py                    quadrature
    method/replay.py                       ActivationPattern.replay
    method/replay.py                         ActivationPattern.run
    tracking/tape.py                           Tape.run
    rules/scaled_leaves.py                       gated
    method/spread.py                     Spreading.__call__
    fields/receptive_field.py              ReceptiveFields.spread
    method/spread.py                       sums
    inputs/request.py                  Request.joined

The model itself runs once. Its calls that depend on the mask are kept on a *tape*, and replays make these calls again
with other values. A model that looks at such values, to choose a branch for example, has no tape and runs again for
every replay. A small graph needs no replay per point: all points run side by side, and the pass without edges is one of
them::

    attribution.py                   GOAtAttribution.attribute
    method/explain.py                  GraphExplanation.attribute
    method/share.py                      share_in_replicas
    method/share.py                        fits_replicas
    tracking/tape.py                       Tape.run
    tracking/replicated_calls.py             ReplicatedCalls.__call__
    rules/replicas.py                        Replicas.gated
    method/spread.py                     Spreading.__call__
    fields/small_fields.py                 SmallFields.spread

And a model is followed once. What its calls do to rows is its *program*; on the next graph the calls are compared with
it, and only the graph's own index tensors go through the rules. In a small graph the tape itself tells which edges
reach the gates: a matrix of rows and edges goes through its gathers and sums. The first time this is compared with the
rows that were followed; after that, rows are not followed any more::

    attribution.py                   GOAtAttribution.attribute
    method/explain.py                  GraphExplanation.record
    method/record.py                     record
    method/record.py                       record_by_program
    hooks/interception.py                    intercepted
    tracking/program.py                        ProgramRun.note
    tracking/program.py                        ProgramRun.made
    tracking/tape.py                             with_constants
    fields/reach.py                          find_reach
    fields/small_fields.py               SmallFields.__init__
    method/explain.py                  GraphExplanation.attribute
    method/spread.py                     Spreading.__call__

With ``at="adjacency"`` the mask enters by :class:`~captum_goat.adjacency.mask_entry.AtAdjacency` in place of
``AtMessages``: in every sum over edges, so that it counts in degrees. Nothing else in the steps differs but the number
of points, because the integrand is smooth then, and no polynomial.

Everything that is put on the user's model comes off again: :mod:`captum_goat.hooks.interception`.
"""
