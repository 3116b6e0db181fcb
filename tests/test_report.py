"""The HTML page: what is in the file. What a browser makes of it is in test_report_browser.py."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_geometric
from conftest import run_command
from torch_geometric.data import Data
from torch_geometric.explain import Explanation, HeteroExplanation

from captum_goat import GOAtAttribution, GOAtExplainer, explain_dataset, explain_nodes, load_attributions
from captum_goat.compare import compare
from captum_goat.datasets import ba_2motifs
from captum_goat.metrics import fidelity_minus, fidelity_plus, select_edges
from captum_goat.models import GraphClassifier
from captum_goat.report import explain_smiles, show, summarize, write_report

pytest.importorskip("networkx")


@pytest.fixture(scope="module")
def model() -> GraphClassifier:
    torch.manual_seed(0)
    return GraphClassifier("gin", in_channels=10, hidden_channels=8, num_classes=2).eval()


def page_data(path: Path) -> dict[str, Any]:
    """Return the data of a page."""
    text = path.read_text(encoding="utf-8")
    (island,) = re.findall(r'<script type="application/json" id="captum-goat-data">(.*?)</script>', text, re.DOTALL)
    data: dict[str, Any] = json.loads(island)
    return data


def explanation(scores: list[float], edges: list[list[int]], **others: Any) -> Explanation:
    return Explanation(edge_index=torch.tensor(edges), edge_mask=torch.tensor(scores), **others)


def test_both_directions_are_one_edge_with_their_sum(tmp_path: Path) -> None:
    one = explanation([0.5, 0.25, -1.0, 0.125], [[0, 1, 1, 2], [1, 0, 2, 1]], num_nodes=3, delta=torch.tensor([0.5]))
    (graph,) = page_data(write_report(tmp_path / "page.html", one, node_labels=["a", "b", "c"]))["graphs"]
    assert graph["edges"] == [[0, 1], [1, 2]]
    assert graph["nodes"] == ["a", "b", "c"]
    (view,) = graph["views"]
    assert view["scores"] == [0.75, -0.875]
    assert (view["sum"], view["difference"], view["error"]) == (-0.125, -0.625, 0.5)
    one.edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 0]])  # directed
    (graph,) = page_data(write_report(tmp_path / "page.html", one))["graphs"]
    assert graph["directed"]
    assert len(graph["views"][0]["scores"]) == 4
    assert graph["svg"].count('class="head"') == 4


@pytest.mark.slow
def test_curves_are_those_of_the_metrics(model: GraphClassifier, tmp_path: Path) -> None:
    graphs = ba_2motifs(5)
    explanations = explain_dataset(model, graphs, target="all", show_progress=False)
    data = page_data(write_report(tmp_path / "page.html", explanations, model=model))
    at = data["shares"].index(0.3)
    for graph, record, explained in zip(graphs, data["graphs"], explanations, strict=True):
        torch.testing.assert_close(
            torch.tensor(record["probabilities"]), explained.prediction[0].softmax(0), atol=1e-5, rtol=0
        )
        for column, view in enumerate(record["views"]):
            selected = select_edges(graph, explained.edge_mask[:, column], sparsity=0.7)
            plus, minus = view["curves"]["score"]
            assert plus[at] == pytest.approx(float(fidelity_plus(model, graph, selected, column)), abs=1e-4)
            assert minus[at] == pytest.approx(float(fidelity_minus(model, graph, selected, column)), abs=1e-4)
            merged = {tuple(sorted(edge)): 0.0 for edge in graph.edge_index.t().tolist()}
            for edge, score in zip(graph.edge_index.t().tolist(), explained.edge_mask[:, column].tolist(), strict=True):
                merged[tuple(sorted(edge))] += score
            assert view["scores"] == pytest.approx(
                [merged[edge] for edge in zip(*record["edges"], strict=True)], abs=1e-7
            )


@pytest.mark.slow
def test_methods_stand_side_by_side(model: GraphClassifier, tmp_path: Path) -> None:
    graphs = ba_2motifs(2)
    goat = explain_dataset(model, graphs, show_progress=False)
    other = explain_dataset(GOAtAttribution(model, at="adjacency"), graphs, show_progress=False)
    data = page_data(write_report(tmp_path / "page.html", {"GOAt": goat, "at the adjacency": other}, model=model))
    assert data["methods"] == ["GOAt", "at the adjacency"]
    assert [view["method"] for view in data["graphs"][0]["views"]] == [0, 1]
    with pytest.raises(ValueError, match="as many of each method"):
        write_report(tmp_path / "page.html", {"GOAt": goat, "other": other[:1]})
    with pytest.raises(ValueError, match="the same graphs"):
        write_report(tmp_path / "page.html", {"GOAt": goat, "other": other[::-1]})


@pytest.mark.slow
def test_saved_attributions_and_nodes(model: GraphClassifier, tmp_path: Path) -> None:
    graphs = ba_2motifs(3)
    explain_dataset(model, graphs, out=tmp_path / "a.pt", show_progress=False)
    saved = load_attributions(tmp_path / "a.pt")
    data = page_data(write_report(tmp_path / "page.html", saved, graphs=graphs, model=model))
    assert len(data["graphs"]) == 3
    assert any("predicted" in value for name, value in data["receipt"] if name == "Options")
    with pytest.raises(ValueError, match="other edges in graph 0"):
        write_report(tmp_path / "page.html", saved, graphs=graphs[::-1])
    from torch_geometric.nn import GCN

    whole = Data(x=torch.ones(6, 2), edge_index=torch.tensor([[0, 1, 2, 5], [1, 2, 3, 4]]))
    nodes = explain_nodes(GCN(2, 4, 2, 2).eval(), whole, nodes=[3, 4], out=tmp_path / "n.pt")
    for explanations in (nodes, load_attributions(tmp_path / "n.pt")):
        data = page_data(write_report(tmp_path / "page.html", explanations, node_labels=list("abcdef")))
        assert [graph["name"] for graph in data["graphs"]] == ["node 3", "node 4"]
        named = [dict(zip(graph["ids"], graph["nodes"], strict=True)) for graph in data["graphs"]]
        assert named == [{1: "b", 2: "c", 3: "d"}, {4: "e", 5: "f"}]


class Tags(HTMLParser):
    """Collect the tags and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: dict[str, str | None] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= dict(attrs)


def test_names_are_text_and_nothing_is_loaded(tmp_path: Path) -> None:
    nasty = "</script><script>alert(1)</script>\"'&\u2028\x00\ud800 ünï 漢"
    one = explanation([1.0], [[0], [1]], num_nodes=2)
    path = write_report(
        tmp_path / "p.html", one, title=nasty, class_names=[nasty], node_labels=[nasty] * 2, graph_names=[nasty]
    )
    tags = Tags()
    tags.feed(path.read_text(encoding="utf-8"))
    assert tags.tags.count("script") == 2
    assert not {"link", "img", "iframe", "a"} & {*tags.tags}
    assert not {"src", "href", "style", "onclick"} & tags.attributes.keys()
    assert "default-src 'none'; script-src 'sha256-" in path.read_text(encoding="utf-8")
    assert page_data(path)["graphs"][0]["name"].startswith("</script><script>alert(1)")


@pytest.mark.parametrize(
    ("explanations", "message"),
    [
        ([], "one or more explanations"),
        ([Data(edge_index=torch.zeros(2, 1, dtype=torch.long))], "with edge_index and edge_mask"),
        (HeteroExplanation(), "homogeneous graphs"),
        ("attributions.pt", "with edge_index and edge_mask"),
        (explanation([float("nan")], [[0], [1]], num_nodes=2), "finite attributions"),
    ],
)
def test_what_is_no_explanation_is_refused(explanations: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        write_report(tmp_path / "page.html", explanations)
    assert not (tmp_path / "page.html").exists()


def test_numbers_that_are_not_finite_are_left_out(tmp_path: Path) -> None:
    infinite = torch.tensor([[1.0, float("inf")]])
    odd = explanation([1.0], [[0], [1]], num_nodes=2, prediction=infinite, delta=torch.tensor([float("nan")]))
    (graph,) = page_data(write_report(tmp_path / "page.html", odd))["graphs"]
    assert "probabilities" not in graph
    assert "error" not in graph["views"][0]


def test_graphs_without_edges_or_with_loops(tmp_path: Path) -> None:
    empty = Explanation(edge_index=torch.zeros(2, 0, dtype=torch.long), edge_mask=torch.zeros(0), num_nodes=2)
    loop = explanation([1.0, 2.0], [[0, 0], [0, 1]], num_nodes=2)
    data = page_data(write_report(tmp_path / "page.html", [empty, loop]))
    assert [len(graph["views"][0]["scores"]) for graph in data["graphs"]] == [0, 2]


def test_frequent_substructures() -> None:
    """Triangles and paths of known labels, at random places of random graphs."""
    triangle, path = [(0, 1), (1, 2), (2, 0)], [(0, 1), (1, 2), (2, 3)]
    explanations = []
    for number in range(6):
        order = torch.randperm(8, generator=torch.Generator().manual_seed(number)).tolist()
        edges = [(order[a], order[b]) for a, b in (triangle if number < 4 else path)]
        labels = [""] * 8
        for node, label in zip(order, "CNOHCCCC", strict=True):
            labels[node] = label
        weak = [(order[4], order[5]), (order[6], order[7]), (order[5], order[6])]
        ends = torch.tensor([*edges, *weak, *[(b, a) for a, b in edges], *[(b, a) for a, b in weak]]).t()
        scores = torch.tensor([1.0, 1.0, 1.0, 0.1, 0.1, -0.1] * 2)
        explanations.append(
            Explanation(edge_index=ends, edge_mask=scores, num_nodes=8, labels=labels, target=torch.tensor([1]))
        )
    table = summarize(explanations, sparsity=0.5, node_labels=lambda graph: graph.labels)
    rows = table.to_dict("records")
    assert [(row["pattern"], row["count"], row["graphs"]) for row in rows] == [
        ("C-N, C-O, N-O", 4, 6),
        ("C-N, H-O, N-O", 2, 6),
    ]
    assert [row["coverage"] for row in rows] == [4 / 6, 1.0]
    assert [row["examples"] for row in rows] == [[0, 1, 2], [4, 5]]
    assert rows[0]["mean_share"] == pytest.approx(3 / 3.3)
    unlabelled = summarize(explanations, sparsity=0.0)
    counts = {(row["sign"], row["count"]) for row in unlabelled.to_dict("records")}
    assert ("-", 6) in counts
    with pytest.raises(ValueError, match="one method"):
        summarize({"a": explanations, "b": explanations})


@pytest.mark.slow
def test_comparison_as_a_page(model: GraphClassifier, tmp_path: Path) -> None:
    comparison = compare(model, ba_2motifs(3), ("goat", "random"), show_progress=False)
    data = page_data(comparison.write_html(tmp_path / "page.html", model=model))
    assert data["methods"] == ["goat", "random"]
    assert len(data["graphs"]) == 3
    assert "goat" in dict(data["receipt"])["Gain (mean of fid+ minus fid-)"]


@pytest.mark.slow
def test_command_line(model: GraphClassifier, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graphs = ba_2motifs(9)
    torch.save(graphs, tmp_path / "graphs.pt")
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    explain_dataset(model, graphs, out=tmp_path / "a.pt", show_progress=False)
    words = ["report", "--attributions", str(tmp_path / "a.pt"), "--out", str(tmp_path / "page.html")]
    assert run_command([*words, "--limit", "2"]) == 0
    assert str(tmp_path / "page.html") in capsys.readouterr().out
    assert len(page_data(tmp_path / "page.html")["graphs"]) == 2
    arguments = '["gin", 10, 8, 2]'
    words += ["--data", str(tmp_path / "graphs.pt"), "--class-names", "cycle", "house"]
    words += ["--model", str(tmp_path / "weights.pt"), "--class", "captum_goat.models:GraphClassifier"]
    assert run_command([*words, "--arguments", arguments]) == 0, capsys.readouterr().err
    data = page_data(tmp_path / "page.html")
    assert data["classes"] == ["cycle", "house"]
    assert "curves" in data["graphs"][0]["views"][0]
    assert data["summary"]
    assert run_command(["report", "--attributions", "no.pt", "--out", "page.html"]) == 1
    assert "no such file" in capsys.readouterr().err


def test_smiles() -> None:
    """Both directions of a bond are added up in RDKit's order; hydrogens may be there or not."""
    chem = pytest.importorskip("rdkit.Chem")

    class Sums(torch.nn.Module):  # of products of neighbours' first features, one output
        def __init__(self) -> None:
            super().__init__()
            from torch_geometric.nn import SimpleConv

            self.conv, self.weight = SimpleConv(), torch.nn.Parameter(torch.ones(1, dtype=torch.float64))

        def forward(self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
            return self.weight * torch_geometric.nn.global_add_pool(self.conv(x[:, :1], edge_index), batch)

    one, other = explain_smiles(Sums().eval(), ["OC=N", "CC"], target=0)
    assert one.bond_scores.tolist() == [8 + 6, 6 + 7]  # atomic numbers of both ends
    assert one.atom_scores.tolist() == [7, 13.5, 6.5]
    assert other.bond_scores.tolist() == [12]

    def with_hydrogens(text: str) -> Data:
        graph = torch_geometric.utils.from_smiles(text, with_hydrogen=True)
        graph.x = graph.x.double()
        return graph

    methane = explain_smiles(Sums().eval(), "C", with_hydrogens, target=0)
    assert methane.bond_scores.tolist() == [7.0] * 4
    molecule = chem.AddHs(chem.MolFromSmiles("C"))
    assert len(methane.atom_scores) == molecule.GetNumAtoms()
    with pytest.raises(ValueError, match="valid SMILES \\(got 'C\\(C'\\)"):
        explain_smiles(Sums().eval(), "C(C")
    with pytest.raises(ValueError, match="matching smiles"):
        explain_smiles(Sums().eval(), "CCC", lambda text: with_hydrogens("CC"), target=0)


def test_explanations_of_pyg(tmp_path: Path) -> None:
    """Of a node: PyG adds the predictions and classes of all nodes."""
    from torch_geometric.explain import Explainer
    from torch_geometric.nn import GCN

    torch.manual_seed(0)
    data = Data(x=torch.randn(5, 3), edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]]))
    model = GCN(3, 8, 2, 3).eval()
    config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
    explainer = Explainer(
        model, GOAtExplainer(), explanation_type="model", edge_mask_type="object", model_config=config
    )
    explained = explainer(data.x, data.edge_index, index=4)
    (graph,) = page_data(write_report(tmp_path / "page.html", explained))["graphs"]
    logits = model(data.x, data.edge_index)[4]
    assert graph["probabilities"] == pytest.approx(logits.softmax(0).tolist(), abs=1e-5)
    assert graph["views"][0]["class"] == graph["predicted"] == int(logits.argmax())
    assert "<g data-n=\"4\" class='root'>" in graph["svg"]


@pytest.mark.slow
def test_one_logit_and_regression(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, graphs = GraphClassifier("gin", 10, 8, 1).eval(), ba_2motifs(2)
    explanations = explain_dataset(model, graphs, target=None, show_progress=False)
    (graph, _) = page_data(write_report(tmp_path / "page.html", explanations))["graphs"]
    assert graph["output"] == pytest.approx(float(explanations[0].prediction))
    assert "probabilities" not in graph
    (graph, _) = page_data(write_report(tmp_path / "page.html", explanations, model=model))["graphs"]
    selected = select_edges(graphs[0], explanations[0].edge_mask, sparsity=0.5)
    plus = graph["views"][0]["curves"]["score"][0][10]
    assert plus == pytest.approx(float(fidelity_plus(model, graphs[0], selected, 1)), abs=1e-4)


def test_without_anywidget_the_picture_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("captum_goat.report.page.find_spec", lambda name: None)
    figure = show(explanation([1.0, -1.0], [[0, 1], [1, 2]], num_nodes=3))
    assert len(figure.axes[0].collections) > 0


@pytest.mark.slow
def test_docs(model: GraphClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snippets of the page, in their order."""
    pytest.importorskip("rdkit")
    text = (Path(__file__).parents[1] / "docs" / "report.md").read_text(encoding="utf-8")

    def featurizer(smiles: str) -> Data:
        graph = torch_geometric.utils.from_smiles(smiles)
        graph.x = torch.nn.functional.pad(graph.x.float(), (0, 1))
        return graph

    names = {"model": model, "graphs": ba_2motifs(8), "featurizer": featurizer}
    monkeypatch.chdir(tmp_path)
    for snippet in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(snippet, "report.md", "exec"), names)
    assert len(page_data(tmp_path / "report.html")["graphs"]) == 8
    (nitrobenzene, ethanol) = page_data(tmp_path / "molecules.html")["graphs"]
    assert ethanol["nodes"] == ["C", "C", "O"]
    assert len(nitrobenzene["views"][0]["scores"]) == len(names["explanations"][0].bond_scores) == 9
    assert {"pattern", "count", "coverage"} <= {*names["table"].columns}
