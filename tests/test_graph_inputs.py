"""Naming the arguments of a model and laying copies of a graph side by side."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data, HeteroData

from captum_goat.inputs.arguments import EdgeSet
from captum_goat.inputs.graph_inputs import GraphInputs

EDGES = torch.tensor([[0, 1, 2, 2], [1, 2, 0, 1]])


class Named(nn.Module):
    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
        ptr: Tensor | None = None,
        batch_size: int | None = None,
        scale: Tensor | None = None,
    ) -> tuple[Any, ...]:
        return x, edge_index, edge_attr, batch, ptr, batch_size, scale


def test_copies_are_what_pyg_would_batch() -> None:
    x, edge_attr, scale = torch.rand(3, 2), torch.rand(4, 5), torch.rand(7)
    inputs = GraphInputs.of(Named(), (x, EDGES, edge_attr), {"scale": scale}, 4)
    expected = Batch.from_data_list([Data(x=x, edge_index=EDGES, edge_attr=edge_attr)] * 3)
    copied = inputs.copies(3)()
    for value, name in zip(copied[:4], ("x", "edge_index", "edge_attr", "batch"), strict=True):
        assert torch.equal(value, expected[name]), name
    assert copied[6] is scale, "a tensor that is neither of nodes nor of edges nor of graphs stays as it is"


def test_copies_of_a_batch() -> None:
    graph = Batch.from_data_list(
        [Data(x=torch.rand(2, 1), edge_index=EDGES[:, :1]), Data(x=torch.rand(3, 1), edge_index=EDGES)]
    )
    arguments = {"batch": graph.batch, "ptr": graph.ptr, "batch_size": 2}
    inputs = GraphInputs.of(Named(), (graph.x, graph.edge_index), arguments, 5)
    expected = Batch.from_data_list([*graph.to_data_list()] * 2)
    _, edge_index, _, batch, ptr, batch_size, _ = inputs.copies(2)()
    assert torch.equal(edge_index, expected.edge_index)
    assert torch.equal(batch, expected.batch)
    assert torch.equal(ptr, expected.ptr)
    assert batch_size == 4


def test_as_many_edges_as_nodes_are_not_confused() -> None:
    square = torch.tensor([[0, 1, 2], [1, 2, 0]])
    x, edge_attr = torch.rand(3, 2), torch.rand(3, 1)
    copied = GraphInputs.of(Named(), (x, square, edge_attr), {}, 3).copies(2)()
    assert torch.equal(copied[0], x.repeat(2, 1))
    assert torch.equal(copied[1], torch.cat([square, square + 3], dim=1))


def test_arguments_without_names_are_taken_as_usual() -> None:
    class Variadic(nn.Module):
        def forward(self, *arguments: Any) -> Any:
            return arguments

    batch = torch.zeros(3, dtype=torch.long)
    _, edge_index, copied_batch = GraphInputs.of(Variadic(), (torch.rand(3, 2), EDGES, batch), {}, 4).copies(2)()
    assert torch.equal(edge_index[:, 4:], EDGES + 3)
    assert copied_batch.tolist() == [0, 0, 0, 1, 1, 1]


def test_edges_are_found_under_another_name() -> None:
    class Renamed(nn.Module):
        def forward(self, features: Tensor, links: Tensor) -> tuple[Tensor, Tensor]:
            return features, links

    assert GraphInputs.of(Renamed(), (torch.rand(3, 2), EDGES), {}, 4).edges == (EdgeSet("links"),)
    with pytest.raises(ValueError, match="Name it 'edge_index'"):
        GraphInputs.of(Renamed(), (torch.rand(3, 2), torch.rand(3)), {}, 4)
    with pytest.raises(ValueError, match="Expected one mask entry per edge: 3 for 'links'"):
        GraphInputs.of(Renamed(), (torch.rand(3, 2), torch.eye(3).to_sparse()), {}, 4)


@pytest.mark.parametrize("inner", [1, 2, 5, 10])
def test_captums_expansion_is_undone(inner: int) -> None:
    x, edge_attr = torch.arange(6.0).view(3, 2), torch.rand(4, 1)
    expanded = [
        tensor.repeat_interleave(inner, dim=0).repeat(10 // inner, *[1] * (tensor.dim() - 1))
        for tensor in (x, EDGES, edge_attr)
    ]
    restored = GraphInputs.of(Named(), tuple(expanded), {}, 4)()
    assert all(torch.equal(a, b) for a, b in zip(restored, (x, EDGES, edge_attr), strict=False))


def test_an_expansion_that_cannot_be_told_is_refused() -> None:
    """Where all edges are self-loops, they do not tell how the features were repeated."""
    x, loops = torch.tensor([[1.0], [2.0], [1.0], [2.0]]), torch.arange(4).repeat(2, 1)
    with pytest.raises(ValueError, match="Pass the graph as one torch_geometric Data"):
        GraphInputs.of(Named(), (x.repeat_interleave(2, 0), loops.repeat_interleave(2, 0)), {}, 4)


def test_a_data_object_stands_for_the_arguments() -> None:
    class Whole(nn.Module):
        def forward(self, data: Data) -> tuple[Tensor, Tensor]:
            return data.x, data.edge_index

    data = Data(x=torch.rand(3, 2), edge_index=EDGES, edge_attr=torch.rand(4, 1), y=torch.tensor(1))
    for args in ((data,), tuple(data)):
        arguments = GraphInputs.of(Named(), args, {}, 4)()
        assert torch.equal(arguments[0], data.x)
        assert torch.equal(arguments[2], data.edge_attr)
    other = torch.rand(3, 2)
    arguments = GraphInputs.of(Named(), (data,), leading=1)([other])
    assert arguments[0] is other
    assert arguments[1] is EDGES
    x, edge_index = GraphInputs.of(Whole(), (data,), {}, 4).copies(2)()
    assert torch.equal(x, data.x.repeat(2, 1))
    assert torch.equal(edge_index, torch.cat([EDGES, EDGES + 3], dim=1))


class NamedHetero(nn.Module):
    def forward(
        self, x_dict: Any, edge_index_dict: Any, edge_attr_dict: Any = None, batch_dict: Any = None, links: Any = None
    ) -> tuple[Any, ...]:
        return x_dict, edge_index_dict, edge_attr_dict, batch_dict, links


def hetero_data(papers: int = 3) -> HeteroData:
    data = HeteroData()
    data["paper"].x, data["author"].x = torch.rand(papers, 2), torch.rand(2, 4)
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1, 1], [0, 2, 1]])
    data["paper", "cites", "paper"].edge_index = torch.tensor([[0, 2], [1, 1]])
    data["paper", "cites", "paper"].edge_attr = torch.rand(2, 1)
    return data


def assert_same(actual: dict[Any, Tensor], expected: dict[Any, Tensor]) -> None:
    assert list(actual) == list(expected)
    for key, tensor in actual.items():
        assert torch.equal(tensor, expected[key]), key


def test_copies_of_a_heterogeneous_graph_are_what_pyg_would_batch() -> None:
    data = hetero_data()
    batch = Batch.from_data_list([data, hetero_data(papers=4)])
    for given, expected in ((data, [data] * 3), (batch, batch.to_data_list() * 3)):
        whole = Batch.from_data_list(expected)
        inputs = GraphInputs.of(
            NamedHetero(), (given,), {}, [edge_index.size(1) for edge_index in given.edge_index_dict.values()]
        )
        *dictionaries, links = inputs.copies(3)()
        for name, dictionary in zip(("x", "edge_index", "edge_attr", "batch"), dictionaries, strict=True):
            assert_same(dictionary, whole.collect(name))
        assert links is None
    beside = GraphInputs.of(NamedHetero(), (data.x_dict, data.edge_index_dict, None, None, EDGES), {}, (3, 2))
    with pytest.raises(ValueError, match="dictionaries of tensors"):
        beside.copies(2)


def test_a_heterogeneous_graph_stands_for_the_arguments() -> None:
    class Tensors(nn.Module):
        """Named as by `to_hetero`, and with something that all types share."""

        def forward(self, x: Any, edge_index: Any, scale: Any = None) -> tuple[Any, ...]:
            return x, edge_index, scale

    class Whole(nn.Module):
        def forward(self, graph: HeteroData) -> tuple[Any, ...]:
            return graph.x_dict, graph.edge_index_dict

    data = hetero_data()
    data.scale = 2.0
    for model in (NamedHetero(), Tensors(), Whole()):
        inputs = GraphInputs.of(model, (data,), {}, (3, 2))
        x_dict, edge_index_dict, *others = inputs()
        assert_same(x_dict, data.x_dict)
        assert_same(edge_index_dict, data.edge_index_dict)
        assert all(
            edge_set is other for edge_set, other in zip(inputs.edge_sets, edge_index_dict.values(), strict=True)
        )
        assert others == ([2.0] if isinstance(model, Tensors) else others)
    features = GraphInputs.of(NamedHetero(), (data,), leading=("paper", "author"))
    assert_same(
        features([torch.zeros(3, 2), torch.ones(2, 4)])[0], {"paper": torch.zeros(3, 2), "author": torch.ones(2, 4)}
    )


@pytest.mark.parametrize("inner", [1, 2, 6])
def test_captums_expansion_beside_dictionaries_is_undone(inner: int) -> None:
    """Captum leaves dictionaries alone, but it repeats the tensors beside them."""
    data = hetero_data()
    links = EDGES.repeat_interleave(inner, dim=0).repeat(6 // inner, 1)
    arguments = (data.x_dict, data.edge_index_dict, None, None)
    restored = GraphInputs.of(NamedHetero(), (*arguments, links), {}, (3, 2), count=12)()
    assert torch.equal(restored[4], EDGES)
    for given, count in ((links, 1), (EDGES, 12), (torch.arange(12), 12)):  # no masks, not repeated, not repeated
        assert GraphInputs.of(NamedHetero(), (*arguments, given), {}, (3, 2), count=count)()[4] is given


def test_dictionaries_are_brought_into_forms_that_can_be_followed() -> None:
    data = hetero_data()
    edges = {key: EdgeIndex(edge_index).to(torch.int32) for key, edge_index in data.edge_index_dict.items()}
    edge_sets = GraphInputs.of(NamedHetero(), (data.x_dict, edges), {}, (3, 2)).edge_sets
    assert [(type(edge_set), edge_set.dtype) for edge_set in edge_sets] == [(Tensor, torch.long)] * 2
    assert GraphInputs.of(NamedHetero(), (data.x_dict, edges)).edges[1].label == ("paper", "cites", "paper")
