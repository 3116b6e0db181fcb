// The page of captum_goat.report, and the notebook widget. All markup is built as DOM nodes: text is never parsed as HTML.
// Pictures come as SVG from Python, with data-e (edge) and data-n (node); here they get colours, widths and events.

const ROWS = 200; // of the table that are drawn at a time
const SVG = "http://www.w3.org/2000/svg";

function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "path", "line", "text", "circle", "g"].includes(tag);
  const node = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name.startsWith("aria-")) node.setAttribute(name, value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child != null));
  return node;
}

const minus = (text) => text.replaceAll("-", "\u2212");
const significant = (value) => minus(value && Math.abs(value) < 1e-3 ? value.toExponential(1) : String(Number(value.toPrecision(3))));
const percent = (value) => minus((100 * value).toFixed(1)) + " %";
const sum = (values) => values.reduce((total, value) => total + value, 0);
const options = (names) => names.map((name, value) => make("option", { value }, name));

let fields = 0;
function field(label, input) {
  input.id = `cg-field-${++fields}`;
  return make("span", { class: "cg-field" }, make("label", { for: input.id }, label), input);
}

function parse(svg) {
  return document.importNode(new DOMParser().parseFromString(svg, "image/svg+xml").documentElement, true);
}

// One graph and what is derived from it: orders of edges, scales, names.
class Graph {
  constructor(record, shared) {
    Object.assign(this, record);
    this.count = this.edges[0].length;
    this.shared = shared;
  }
  node(index) {
    const id = String(this.ids ? this.ids[index] : index);
    const label = this.nodes ? this.nodes[index] : "";
    return label && label !== id ? `${label} (${id})` : id;
  }
  edge(index) {
    const [source, target] = this.edges;
    return `${this.node(source[index])} ${this.directed ? "\u2192" : "\u2013"} ${this.node(target[index])}`;
  }
  view(method, column) {
    const own = this.views.filter((view) => view.method === method);
    return own.find((view) => view.class === column) ?? own[0] ?? this.views[0];
  }
  full(view, common) {
    return (common ? Math.max(...this.views.map((each) => each.scale)) : view.scale) || 1;
  }
  ranked(view, order) {
    const key = order === "score" ? (score) => -score : (score) => -Math.abs(score);
    view.ranked ??= {};
    view.ranked[order] ??= view.scores.map((_, edge) => edge)
      .sort((a, b) => key(view.scores[a]) - key(view.scores[b]) || a - b);
    return view.ranked[order];
  }
  className(index) {
    return index == null ? "the output" : this.shared.classes[index] ?? `class ${index}`;
  }
  get first() {
    return this.views.find((view) => view.class === this.predicted) ?? this.views[0];
  }
}

// Colour the edges of a picture: --s is the strength from 0 to 1; CSS mixes the colours, so that dark mode is free.
function paint(picture, graph, view, kept, full) {
  const groups = [...picture.querySelectorAll("[data-e]")];
  for (const group of groups) {
    const edge = Number(group.dataset.e), score = view.scores[edge];
    const on = !kept || kept.has(edge);
    group.style.setProperty("--s", on ? Math.min(1, Math.abs(score) / full).toFixed(3) : 0);
    group.classList.toggle("pos", on && score > 0);
    group.classList.toggle("neg", on && score < 0);
    group.classList.toggle("off", !on);
  }
  const strength = (group) => Math.abs(view.scores[group.dataset.e]) * !group.classList.contains("off");
  groups.sort((a, b) => strength(a) - strength(b));
  groups[0]?.parentNode.append(...groups);
}

export class Page {
  constructor(root, data, onselect = () => {}) {
    this.root = root;
    this.data = data;
    this.onselect = onselect;
    this.graphs = data.graphs.map((record) => new Graph(record, data));
    this.selected = new Set();
    this.sort = { key: "rank", down: false };
    this.rows = ROWS;
    root.classList.add("cg-root");
    root.classList.toggle("cg-many", this.graphs.length > 1);
    root.replaceChildren(
      make("header", {}, make("h1", {}, data.title), make("p", {}, data.subtitle)),
      make("div", { class: "cg-body" }, this.graphs.length > 1 ? this.gallery() : null,
        make("main", {}, this.figure(), this.side(), this.table())),
      data.summary.length ? this.summary() : "",
      this.receipt(),
    );
    this.open(0);
  }

  // ------------------------------------------------------------------------------------------------ the parts
  gallery() {
    this.cards = this.graphs.map((graph, index) => {
      const thumbnail = make("span", { class: "cg-thumbnail", "aria-hidden": "true" });
      const view = graph.first;
      const note = graph.probabilities
        ? `${graph.className(graph.predicted)} ${percent(graph.probabilities[graph.predicted])}`
        : `sum ${significant(view.sum)}`;
      const wrong = graph.label != null && graph.predicted != null && graph.label !== graph.predicted;
      const card = make("button", { type: "button", onclick: () => this.open(index) }, thumbnail,
        make("span", { class: "cg-name" }, graph.name),
        make("span", { class: "cg-note" }, note + (wrong ? ", wrong" : "")));
      return Object.assign(card, { graph, thumbnail, index });
    });
    const watch = new IntersectionObserver((entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting || target.firstChild) continue;
        const graph = target.parentNode.graph, view = graph.first;
        target.append(parse(graph.svg));
        paint(target, graph, view, null, graph.full(view, true));
      }
    }, { rootMargin: "200px" });
    this.cards.forEach((card) => watch.observe(card.thumbnail));
    this.list = make("div", { class: "cg-cards" }, ...this.cards);
    const keys = [
      ["as given", (graph, index) => index],
      ["by predicted class", (graph) => graph.predicted ?? 0],
      ["by confidence", (graph) => -Math.max(...(graph.probabilities ?? [0]))],
      ["by sum of scores", (graph) => -graph.first.sum],
    ];
    const sort = make("select", {}, ...options(keys.map(([name]) => name)));
    const search = make("input", { type: "search", placeholder: "name or class" });
    const arrange = () => {
      const key = keys[sort.value][1], word = search.value.toLowerCase();
      const sorted = [...this.cards].sort((a, b) => key(a.graph, a.index) - key(b.graph, b.index) || a.index - b.index);
      for (const card of sorted) card.hidden = !card.textContent.toLowerCase().includes(word);
      this.list.append(...sorted);
    };
    sort.addEventListener("change", arrange);
    search.addEventListener("input", arrange);
    return make("nav", { class: "cg-gallery", "aria-label": "Graphs" },
      make("h2", {}, `${this.graphs.length} graphs`), field("Order", sort), field("Find", search), this.list);
  }

  figure() {
    const zoom = (factor) => () => this.zoom(factor);
    this.caption = make("h2", {});
    this.method = make("select", { onchange: () => this.show() }, ...options(this.data.methods));
    this.column = make("select", { onchange: () => this.show() });
    this.common = make("input", { type: "checkbox", checked: true, onchange: () => this.show() });
    this.columnField = field("Class", this.column);
    this.methodField = field("Method", this.method);
    this.commonField = field("One colour scale", this.common);
    this.slider = make("input", { type: "range", min: 0, step: 1, class: "cg-slider", oninput: () => this.show() });
    this.order = make("select", { onchange: () => this.show() }, make("option", { value: "size" }, "strongest"),
      make("option", { value: "score" }, "most supporting"));
    this.kept = make("output", { class: "cg-kept", "aria-live": "polite" });
    this.canvas = make("div", { class: "cg-canvas", tabindex: 0, role: "group", onkeydown: (event) => this.key(event) });
    this.tip = make("div", { class: "cg-tip", role: "status" });
    this.bar = make("div", { class: "cg-bar" }, make("span"), make("i", { "aria-hidden": "true" }), make("span"));
    this.pointer(this.canvas);
    return make("section", { class: "cg-card cg-figure" }, this.caption,
      make("div", { class: "cg-controls" }, this.methodField, this.columnField, this.commonField),
      make("div", { class: "cg-stage" }, this.canvas, this.tip,
        make("div", { class: "cg-zoom" },
          make("button", { type: "button", "aria-label": "Zoom in", onclick: zoom(0.8) }, "+"),
          make("button", { type: "button", "aria-label": "Zoom out", onclick: zoom(1.25) }, "\u2212"),
          make("button", { type: "button", "aria-label": "Show all", onclick: () => this.fit() }, "\u2922"))),
      this.bar,
      make("div", { class: "cg-controls" }, field("Keep the", this.order), field("edges", this.slider)), this.kept);
  }

  side() {
    this.prediction = make("div");
    this.words = make("p", { class: "cg-words" });
    this.curves = make("div");
    return make("section", { class: "cg-card cg-side" }, make("h2", {}, "Prediction"), this.prediction,
      make("h2", {}, "Do the scores add up?"), this.words, this.curves);
  }

  table() {
    this.columns = [
      ["rank", "Rank", (edge) => this.rank[edge]],
      ["source", "Source", (edge) => this.graph.node(this.graph.edges[0][edge])],
      ["target", "Target", (edge) => this.graph.node(this.graph.edges[1][edge])],
      ["score", "Score", (edge) => this.view.scores[edge]],
      ["share", "Share", (edge) => this.view.scores[edge] / (this.view.sum || NaN)],
    ];
    this.heads = this.columns.map(([key, title]) => make("th", { scope: "col", "data-key": key },
      make("button", { type: "button", onclick: () => this.sortBy(key) }, title)));
    this.filter = make("input", { type: "search", placeholder: "node or label",
      oninput: () => { this.rows = ROWS; this.fill(); } });
    this.body = make("tbody", { onkeydown: (event) => this.rowKey(event) });
    this.more = make("button", { type: "button", onclick: () => { this.rows += 1000; this.fill(); } });
    this.count = make("span", { class: "cg-note", "aria-live": "polite" });
    return make("section", { class: "cg-card cg-table" }, make("h2", {}, "Edges"),
      make("div", { class: "cg-controls" }, field("Find", this.filter),
        make("button", { type: "button", onclick: () => this.copy() }, "Copy CSV"),
        make("button", { type: "button", onclick: () => this.save() }, "Save CSV"), this.count),
      make("div", { class: "cg-scroll" }, make("table", {},
        make("caption", { class: "cg-hidden" }, "Edges with their scores; Enter selects the edge of a row."),
        make("thead", {}, make("tr", {}, ...this.heads)), this.body)), this.more);
  }

  summary() {
    const heading = (row) => `${row.sign === "+" ? "For" : "Against"} ${row.class}`;
    const lists = [...new Set(this.data.summary.map(heading))].map((name) => make("div", {}, make("h3", {}, name), make("ol",
      { class: "cg-cards" }, ...this.data.summary.filter((row) => heading(row) === name).map((row) => {
        const picture = parse(row.svg);
        for (const group of picture.querySelectorAll("[data-e]")) {
          group.style.setProperty("--s", 0.8);
          group.classList.add(row.sign === "+" ? "pos" : "neg");
        }
        const examples = row.examples.map((graph) => make("button", { type: "button", class: "cg-link",
          onclick: () => this.open(graph, true) }, this.graphs[graph].name));
        return make("li", {}, make("span", { class: "cg-thumbnail" }, picture),
          make("span", { class: "cg-name" }, `in ${row.count} of ${row.graphs} graphs`),
          make("span", { class: "cg-note" }, `${row.pattern}; mean share ${percent(row.mean_share)}, `
            + `${percent(row.coverage)} of the graphs covered so far`),
          make("span", { class: "cg-note" }, "e.g. ", ...examples));
      }))));
    return make("section", { class: "cg-card" }, make("h2", {}, "What does the model look at?"),
      make("p", { class: "cg-note" }, "Connected parts of the strongest 30 % of the edges, by class, with the number of graphs that have them. "
        + "The share is that of the summed magnitudes of a graph's scores."), ...lists);
  }

  receipt() {
    return make("footer", {}, make("details", { open: true }, make("summary", {}, "Receipt"),
      make("dl", {}, ...this.data.receipt.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]))));
  }

  // ------------------------------------------------------------------------------------------------ one graph
  open(index, scroll = false) {
    const graph = (this.graph = this.graphs[index]);
    this.index = index;
    this.cards?.forEach((card) => card.setAttribute("aria-pressed", card.index === index));
    this.picture = parse(graph.svg);
    for (const group of this.picture.querySelectorAll("[data-e]")) {
      const hit = group.firstElementChild.cloneNode();
      hit.setAttribute("class", "hit");
      group.append(hit);
    }
    this.canvas.replaceChildren(this.picture);
    const [x, y, w, h] = this.picture.getAttribute("viewBox").split(" ").map(Number);
    this.home = { x, y, w, h };
    this.fit();
    this.caption.replaceChildren(graph.name);
    const columns = [...new Set(graph.views.map((view) => view.class))];
    const chosen = this.column.value;
    this.column.replaceChildren(...columns.map((value) => make("option", { value: value ?? "" }, graph.className(value))));
    this.column.value = columns.some((value) => String(value) === chosen) && scroll ? chosen : graph.first.class ?? "";
    this.columnField.hidden = columns.length < 2;
    this.methodField.hidden = this.data.methods.length < 2;
    this.commonField.hidden = graph.views.length < 2;
    this.slider.max = graph.count;
    this.slider.value = graph.count;
    this.rows = ROWS;
    this.lines = null;
    this.select([]);
    this.show();
    if (this.ready) this.onselect([]);
    this.ready = true;
    if (scroll) this.root.querySelector("main").scrollIntoView();
  }

  show() {
    const graph = this.graph, column = this.column.value === "" ? null : Number(this.column.value);
    const view = (this.view = graph.view(Number(this.method.value), column));
    const count = Number(this.slider.value), ranked = graph.ranked(view, this.order.value);
    const full = graph.full(view, this.common.checked);
    this.kept_edges = new Set(ranked.slice(0, count));
    this.rank = [];
    graph.ranked(view, "size").forEach((edge, place) => (this.rank[edge] = place + 1));
    this.digits = Math.min(8, Math.max(2, 3 - Math.floor(Math.log10(full))));
    paint(this.picture, graph, view, this.kept_edges, full);
    const [low, , high] = this.bar.children;
    low.textContent = `against ${this.number(-full)}`;
    high.textContent = `${this.number(full)} for`;
    const total = sum(view.scores), kept = sum(ranked.slice(0, count).map((edge) => view.scores[edge]));
    this.kept.textContent = `Kept edges: ${this.number(kept)} of ${this.number(total)} (${count} of ${graph.count} edges)`;
    this.slider.setAttribute("aria-valuetext", this.kept.textContent);
    const what = `${graph.nodes?.length ?? graph.size} nodes and ${graph.count} edges`;
    const best = graph.count ? ` The strongest is ${graph.edge(graph.ranked(view, "size")[0])}.` : "";
    this.canvas.setAttribute("aria-label", `Picture of a graph with ${what}, coloured by score.${best}`);
    this.tip.textContent = graph.note;
    this.predict();
    this.explainSum(total);
    this.draw(count / Math.max(1, graph.count));
    this.fill();
  }

  number(value) {
    return minus(value.toFixed(this.digits));
  }

  predict() {
    const { graph, view } = this, rows = [];
    graph.probabilities?.forEach((probability, index) => {
      const bar = make("i", { "aria-hidden": "true" });
      bar.style.width = `${100 * probability}%`;
      const marks = [index === graph.label ? "label" : "", index === view.class ? "explained" : ""].filter(Boolean);
      rows.push(make("div", { class: `cg-class${index === view.class ? " cg-explained" : ""}` },
        make("span", {}, graph.className(index), marks.length ? make("small", {}, ` ${marks.join(", ")}`) : ""),
        make("span", {}, percent(probability)), bar));
    });
    const output = graph.output == null ? "No prediction is known." : `The output is ${significant(graph.output)}.`;
    this.prediction.replaceChildren(...(rows.length ? rows : [make("p", {}, output)]));
  }

  explainSum(total) {
    const { graph, view } = this, of = view.class == null ? "" : ` for ${graph.className(view.class)}`;
    const error = view.error == null ? "" : `f(graph) \u2212 f(no edges) = ${this.number(view.difference)}`
      + `, error ${significant(Math.abs(view.error))}. f is the output${of}${graph.probabilities ? " before softmax" : ""}.`;
    this.words.textContent = error ? `Yes: the scores add up to ${error}`
      : `The scores add up to ${this.number(total)}; this method does not say to what they should.`;
    if (view.error != null && Math.abs(view.error) > 1e-3 * (Math.abs(view.difference) + sum(view.scores.map(Math.abs)) + 1e-6)) {
      this.words.textContent = `No: the scores add up to ${this.number(total)}, not to ${error}`;
    }
  }

  draw(share) {
    const { view, graph } = this, shares = this.data.shares, name = graph.className(view.class ?? 1);
    const plot = view.curves?.[this.order.value];
    if (!plot) return this.curves.replaceChildren();
    const random = view.curves.random;
    const at = shares.reduce((best, value, index) => (Math.abs(value - share) < Math.abs(shares[best] - share) ? index : best), 0);
    const values = [...plot.flat(), ...random.flat(), 0];
    const low = Math.min(...values), high = Math.max(...values, low + 0.01), width = 300, height = 130;
    const x = (value) => 34 + value * (width - 44), y = (value) => 8 + ((high - value) / (high - low)) * (height - 30);
    const path = (numbers, kind) => make("path", { class: kind,
      d: numbers.map((value, index) => `${index ? "L" : "M"}${x(shares[index]).toFixed(1)} ${y(value).toFixed(1)}`).join("") });
    const text = (label, left, top, anchor) => make("text", { x: left, y: top, "text-anchor": anchor }, label);
    const chart = make("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", class: "cg-chart",
      "aria-label": "Drop of the probability over the share of kept edges" },
      make("line", { x1: x(0), x2: x(1), y1: y(0), y2: y(0), class: "axis" }),
      text(minus(high.toFixed(2)), 30, y(high) + 4, "end"), low < -0.005 ? text(minus(low.toFixed(2)), 30, y(low) + 4, "end") : null,
      text("0 %", x(0), height - 4, "start"), text("kept edges", x(0.5), height - 4, "middle"), text("100 %", x(1), height - 4, "end"),
      make("line", { x1: x(share), x2: x(share), y1: 6, y2: height - 20, class: "cursor" }),
      path(random[0], "plus random"), path(random[1], "minus random"), path(plot[0], "plus"), path(plot[1], "minus"));
    const legend = (kind, label) => make("span", { class: kind }, make("i", { "aria-hidden": "true" }), label);
    const fixed = (value) => minus(value.toFixed(2));
    this.curves.replaceChildren(make("h2", {}, "Does the model use them?"), chart,
      make("p", { class: "cg-legend" }, legend("plus", "fid+"), legend("minus", "fid\u2212"), legend("random", "random edges")),
      make("p", { class: "cg-words" }, shares[at] === 1
        ? `Without any edge, the probability of ${name} drops by ${fixed(plot[0][at])}. Keep fewer edges to see what they do.`
        : `Without the first ${Math.round(100 * shares[at])} % of the edges, the probability of ${name} `
        + `drops by ${fixed(plot[0][at])} (fid+; random edges: ${fixed(random[0][at])}). With only these, it drops by `
        + `${fixed(plot[1][at])} (fid\u2212; random edges: ${fixed(random[1][at])}).`));
  }

  // ------------------------------------------------------------------------------------------------ the table
  listed() {
    const { graph, sort } = this, word = this.filter.value.toLowerCase();
    const value = this.columns.find(([key]) => key === sort.key)[2];
    const edges = graph.edges[0].map((_, edge) => edge).filter((edge) => !word || graph.edge(edge).toLowerCase().includes(word));
    const compare = new Intl.Collator("en", { numeric: true }).compare;
    const keys = edges.map(value), order = edges.map((_, place) => place);
    order.sort((a, b) => (typeof keys[a] === "string" ? compare(keys[a], keys[b]) : keys[a] - keys[b]) || edges[a] - edges[b]);
    return (sort.down ? order.reverse() : order).map((place) => edges[place]);
  }

  fill() {
    const edges = this.listed(), { graph, view } = this;
    const largest = view.scores.reduce((most, score) => Math.max(most, Math.abs(score)), 0) || 1;
    this.lines = new Map();
    for (const edge of edges.slice(0, this.rows)) {
      const score = view.scores[edge], bar = make("i", { class: score < 0 ? "neg" : "pos", "aria-hidden": "true" });
      bar.style.width = `calc((100% - 7rem) * ${Math.abs(score) / largest})`;
      const share = Math.abs(view.sum) > 1e-9 * largest ? percent(score / view.sum) : "\u2013";
      const row = make("tr", { tabindex: -1, "data-row": edge, "aria-selected": this.selected.has(edge),
        class: this.kept_edges.has(edge) ? "" : "off", onclick: () => this.toggle(edge),
        onmouseenter: () => this.hover(edge), onmouseleave: () => this.hover(null), onfocus: () => this.hover(edge) },
        make("td", {}, String(this.rank[edge])), make("td", {}, graph.node(graph.edges[0][edge])),
        make("td", {}, graph.node(graph.edges[1][edge])), make("td", { class: "cg-score" }, bar, make("span", {}, this.number(score))),
        make("td", {}, share));
      this.lines.set(edge, row);
    }
    this.body.replaceChildren(...this.lines.values());
    this.body.firstElementChild?.setAttribute("tabindex", 0);
    this.heads.forEach((head) => head.setAttribute("aria-sort",
      head.dataset.key !== this.sort.key ? "none" : this.sort.down ? "descending" : "ascending"));
    this.more.hidden = edges.length <= this.rows;
    this.more.textContent = `Show more of ${edges.length} rows`;
    this.count.textContent = this.selected.size
      ? `${this.selected.size} selected: ${this.number(sum([...this.selected].map((edge) => view.scores[edge])))}`
      : `${edges.length} of ${graph.count} edges`;
  }

  sortBy(key) {
    this.sort = { key, down: this.sort.key === key ? !this.sort.down : key === "score" || key === "share" };
    this.fill();
  }

  rowKey(event) {
    const row = event.target.closest("tr");
    if (event.key === "ArrowDown") row.nextElementSibling?.focus();
    else if (event.key === "ArrowUp") row.previousElementSibling?.focus();
    else if (event.key === "Enter" || event.key === " ") {
      const edge = Number(row.dataset.row);
      this.toggle(edge);
      this.lines.get(edge)?.focus();
    } else return;
    event.preventDefault();
  }

  csv() {
    const { graph, view } = this, quote = (text) => `"${String(text).replaceAll('"', '""')}"`;
    const id = (node) => (graph.ids ? graph.ids[node] : node);
    const lines = this.listed().map((edge) => {
      const [source, target] = graph.edges.map((ends) => ends[edge]);
      const names = graph.nodes ? [quote(graph.nodes[source]), quote(graph.nodes[target])] : ["", ""];
      return [id(source), id(target), ...names, view.scores[edge], view.sum ? view.scores[edge] / view.sum : "", this.rank[edge]].join(",");
    });
    return ["source,target,source_label,target_label,score,share,rank", ...lines, ""].join("\n");
  }

  async copy() {
    await navigator.clipboard.writeText(this.csv());
    this.count.textContent = "Copied.";
  }

  save() {
    const url = URL.createObjectURL(new Blob([this.csv()], { type: "text/csv" }));
    make("a", { href: url, download: `${this.graph.name.replace(/[^\w-]+/g, "_").slice(0, 60)}.csv` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  // ------------------------------------------------------------------------------------------------ linking
  toggle(edge) {
    const selected = new Set(this.selected);
    if (!selected.delete(edge)) selected.add(edge);
    this.select(selected, edge);
    this.onselect([...selected]);
  }

  select(edges, last = null) {
    this.selected = new Set(edges);
    for (const group of this.picture.querySelectorAll("[data-e]")) {
      group.classList.toggle("selected", this.selected.has(Number(group.dataset.e)));
    }
    if (!this.lines) return;
    const place = last == null ? -1 : this.listed().indexOf(last);
    this.rows = Math.max(this.rows, place + 1);
    this.fill();
    this.lines.get(last)?.scrollIntoView({ block: "nearest" });
  }

  hover(edge, event = null) {
    for (const old of this.root.querySelectorAll(".hover")) old.classList.remove("hover");
    this.tip.textContent = edge == null ? this.graph.note
      : `${this.graph.edge(edge)}: ${this.number(this.view.scores[edge])}, rank ${this.rank[edge]}`;
    if (edge == null) return;
    this.picture.querySelector(`[data-e="${edge}"]`)?.classList.add("hover");
    this.lines.get(edge)?.classList.add("hover");
  }

  hoverNode(node) {
    const { graph, view } = this;
    const own = view.scores.filter((_, edge) => graph.edges[0][edge] === node || graph.edges[1][edge] === node);
    this.hover(null);
    this.tip.textContent = `Node ${graph.node(node)}: ${own.length} edges, ${this.number(sum(own))}`;
  }

  // ------------------------------------------------------------------------------------------------ zoom and pan
  fit() {
    this.box = { ...this.home };
    this.move(0, 0);
  }

  move(x, y) {
    this.box.x += x;
    this.box.y += y;
    this.picture.setAttribute("viewBox", Object.values(this.box).map((value) => value.toFixed(1)).join(" "));
  }

  zoom(factor, x = 0.5, y = 0.5) {
    const { w, h } = this.box, width = Math.min(4 * this.home.w, Math.max(this.home.w / 60, w * factor));
    Object.assign(this.box, { w: width, h: (h * width) / w });
    this.move(x * (w - width), y * (h - this.box.h));
  }

  unit() {
    const { width, height } = this.canvas.getBoundingClientRect();
    return Math.max(this.box.w / width, this.box.h / height); // of the picture, in one pixel
  }

  pointer(canvas) {
    let from = null, moved = false;
    const at = (event, name) => event.target.closest?.(`[data-${name}]`)?.dataset[name];
    canvas.addEventListener("pointerdown", (event) => { from = event; moved = false; });
    canvas.addEventListener("pointermove", (event) => {
      if (from && event.buttons) {
        const unit = this.unit();
        moved ||= Math.hypot(event.clientX - from.clientX, event.clientY - from.clientY) > 4;
        if (moved) this.move((from.clientX - event.clientX) * unit, (from.clientY - event.clientY) * unit);
        if (moved) from = event;
        return;
      }
      const edge = at(event, "e"), node = at(event, "n");
      if (edge != null) this.hover(Number(edge));
      else if (node != null) this.hoverNode(Number(node));
      else this.hover(null);
    });
    canvas.addEventListener("pointerleave", () => this.hover(null));
    canvas.addEventListener("click", (event) => {
      const edge = at(event, "e");
      if (edge != null && !moved) this.toggle(Number(edge));
    });
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && document.activeElement !== canvas) return; // the page scrolls
      event.preventDefault();
      const box = canvas.getBoundingClientRect();
      this.zoom(event.deltaY < 0 ? 0.87 : 1.15, (event.clientX - box.x) / box.width, (event.clientY - box.y) / box.height);
    }, { passive: false });
  }

  key(event) {
    const step = 0.1 * this.box.w, moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
    if (event.key in moves) this.move(...moves[event.key]);
    else if (event.key === "+" || event.key === "=") this.zoom(0.8);
    else if (event.key === "-") this.zoom(1.25);
    else if (event.key === "0") this.fit();
    else if (event.key === "Escape") { this.select([]); this.onselect([]); }
    else return;
    event.preventDefault();
  }
}

// The widget: anywidget calls render. Edges that are selected on either side appear on the other.
export default {
  render({ model, el }) {
    const page = new Page(el, JSON.parse(model.get("data")), (selected) => {
      model.set({ selected, graph: page.index });
      model.save_changes();
    });
    model.on("change:selected", () => page.select(model.get("selected")));
    page.select(model.get("selected"));
  },
};

const island = document.getElementById("captum-goat-data");
if (island) new Page(document.getElementById("captum-goat"), JSON.parse(island.textContent));
