"""The widget: in a real kernel, and its script in a browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Any

import pytest

jupyter_client = pytest.importorskip("jupyter_client")
pytest.importorskip("ipykernel")
pytest.importorskip("anywidget")
pytest.importorskip("networkx")

CODE = """
import torch
from torch_geometric.explain import Explanation
from captum_goat.report import show
edges = torch.tensor([[5, 6, 7], [6, 7, 5]])
widget = show(Explanation(edge_index=edges, edge_mask=torch.tensor([3.0, -1.0, 2.0]), num_nodes=8))
"""
TIMEOUT = 120


@pytest.fixture(scope="module")
def kernel() -> Iterator[Any]:
    import sys

    manager = jupyter_client.KernelManager()
    manager.kernel_spec.argv[0] = sys.executable
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=TIMEOUT)
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def run(client: Any, code: str) -> list[dict[str, Any]]:
    """Run code, and return all messages until the kernel is idle."""
    number, messages = client.execute(code), []
    while True:
        message = client.get_iopub_msg(timeout=TIMEOUT)
        if message["parent_header"].get("msg_id") == number:
            messages.append(message)
            assert message["msg_type"] != "error", message["content"]["traceback"]
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return messages


def printed(messages: list[dict[str, Any]]) -> str:
    return "".join(message["content"]["text"] for message in messages if message["msg_type"] == "stream")


@pytest.mark.slow
def test_selected_edges_go_to_python_and_back(kernel: Any) -> None:
    opened = [message["content"] for message in run(kernel, CODE) if message["msg_type"] == "comm_open"]
    (comm,) = [
        content
        for content in opened
        if "data" in content["data"].get("state", {}) and "selected" in content["data"]["state"]
    ]
    state = comm["data"]["state"]
    assert json.loads(state["data"])["graphs"][0]["views"][0]["scores"] == [3.0, -1.0, 2.0]
    update = {
        "comm_id": comm["comm_id"],
        "data": {"method": "update", "state": {"selected": [0, 2]}, "buffer_paths": []},
    }
    kernel.shell_channel.send(kernel.session.msg("comm_msg", update))  # what the browser sends
    assert printed(run(kernel, "print(widget.selected, widget.selected_edges)")).strip() == "[0, 2] [(5, 6), (7, 5)]"
    messages = run(kernel, "widget.selected = [1]")
    sent = [message["content"]["data"] for message in messages if message["msg_type"] == "comm_msg"]
    assert {"selected": [1]} in [data.get("state") for data in sent]
    with pytest.raises(Empty):
        kernel.get_iopub_msg(timeout=0.1)


@pytest.mark.slow
def test_script_speaks_the_protocol_of_anywidget(tmp_path: Path) -> None:
    """The front end is imitated by an object with get, set, on and save_changes; the module is the widget's own."""
    from browser import chromium

    torch = pytest.importorskip("torch")
    from torch_geometric.explain import Explanation

    from captum_goat.report import show

    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    widget = show(Explanation(edge_index=edges, edge_mask=torch.tensor([3.0, -1.0, 2.0]), num_nodes=3))
    page_file = tmp_path / "page.html"
    page_file.write_text("<!doctype html><div id=here></div>")
    with chromium() as browser:
        page = browser.new_page()
        page.goto(page_file.as_uri())
        page.add_style_tag(content=widget._css)
        result = page.evaluate(
            """async ([script, data]) => {
                const module = await import(URL.createObjectURL(new Blob([script], { type: "text/javascript" })));
                const state = { data, selected: [1], graph: 0 }, listeners = {}, saved = [];
                const model = {
                    get: (name) => state[name],
                    set: (name, value) => Object.assign(state, typeof name === "string" ? { [name]: value } : name),
                    on: (name, call) => { listeners[name] = call; },
                    save_changes: () => saved.push([...state.selected]),
                };
                const el = document.getElementById("here");
                module.default.render({ model, el });
                const marked = () => [...el.querySelectorAll(".selected")].map((node) => Number(node.dataset.e));
                const first = marked();
                el.querySelector("tbody tr").click();
                state.selected = [];
                listeners["change:selected"]();
                return [first, saved, marked()];
            }""",
            [widget._esm, widget.data],
        )
    assert result == [[1], [[1, 0]], []]
