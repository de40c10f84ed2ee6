// The job graph: cards on places that dagre finds once per plan, with edges drawn beneath them.

import dagre from "../../vendor/dagre.js";
import { Shares } from "./basics.js";
import { duration, percent, rate } from "../format.js";
import { Component, html, useEffect, useMemo, useRef, useState } from "../view.js";

const CARD = { width: 204, height: 116 };
const TALLEST = 520;
const SMALLEST = 0.3;
const READABLE = 0.7; // smaller only if asked for: what does not fit is scrolled to

function layOut(vertices) {
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  graph.setGraph({ rankdir: "LR", nodesep: 20, ranksep: 62, marginx: 16, marginy: 16 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const vertex of vertices) graph.setNode(vertex.id, { ...CARD });
  for (const vertex of vertices) {
    vertex.inputs.forEach((input, i) => {
      const label = { ship: input.ship_strategy };
      if (graph.hasNode(input.id)) graph.setEdge(input.id, vertex.id, label, String(i));
    });
  }
  dagre.layout(graph);
  const { width, height } = graph.graph();
  const places = new Map(vertices.map((one) => {
    const { x, y } = graph.node(one.id);
    return [one.id, { x: x - CARD.width / 2, y: y - CARD.height / 2 }];
  }));
  const edges = graph.edges().map((edge) => {
    const { points, ship } = graph.edge(edge);
    return { key: `${edge.v} ${edge.w} ${edge.name}`, path: curve(points), ship, middle: middle(points) };
  });
  return { width, height, places, edges };
}

function curve(points) {
  const [first, ...rest] = points;
  let path = `M${first.x},${first.y}`;
  let before = first;
  for (const point of rest) {
    const bend = (point.x - before.x) / 2;
    path += `C${before.x + bend},${before.y} ${point.x - bend},${point.y} ${point.x},${point.y}`;
    before = point;
  }
  return path;
}

function middle(points) {
  const at = (points.length - 1) / 2;
  const a = points[Math.floor(at)];
  const b = points[Math.ceil(at)];
  return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
}

function heat(vertex) {
  if (vertex.status === "FAILED") return "failed";
  if (vertex.busy === null) return "unknown";
  if (vertex.held >= 0.5) return "held";
  if (vertex.busyMost >= 0.8) return "hot";
  return vertex.busy >= 0.3 ? "busy" : "idle";
}

const HEATS = {
  failed: "failed", unknown: "", held: "backpressured", hot: "busy, its busiest subtask 80% and more",
  busy: "busy", idle: "mostly idle",
};

const SHOWN = ["name", "status", "parallelism", "inRate", "outRate", "busy", "busyMost", "held", "idle", "lag"];

class Card extends Component {
  shouldComponentUpdate(next) {
    const { vertex, place, current, href } = this.props;
    return next.place !== place || next.current !== current || next.href !== href ||
      SHOWN.some((name) => next.vertex[name] !== vertex[name]);
  }

  render({ vertex, place, href, current, take }) {
    const kind = heat(vertex);
    const said = [
      vertex.name, `parallelism ${vertex.parallelism}`, vertex.status.toLowerCase(), HEATS[kind],
      vertex.isSource ? null : `in ${rate(vertex.inRate)}`,
      vertex.isSink ? null : `out ${rate(vertex.outRate)}`,
      vertex.busy === null ? null : `busy ${percent(vertex.busy)}, backpressured ${percent(vertex.held)}`,
      vertex.lag === null ? null : `lag ${duration(vertex.lag)}`,
    ].filter(Boolean).join(", ");
    const style = { left: `${place.x}px`, top: `${place.y}px`, width: `${CARD.width}px`, height: `${CARD.height}px` };
    return html`
      <a class="card heat-${kind}" style=${style} href=${href} data-vertex=${vertex.id} aria-label=${said}
        tabindex=${current ? 0 : -1} onFocus=${take} title=${vertex.name}>
        <span class="name">${vertex.name}</span>
        <span class="facts"><span class="times">×${vertex.parallelism}</span>
          ${vertex.status === "RUNNING" ? null : html`<span>${vertex.status.toLowerCase()}</span>`}
          ${vertex.lag === null ? null : html`<span class="right">lag ${duration(vertex.lag)}</span>`}</span>
        <span class="flow">
          <span>${vertex.isSource ? "source" : html`<i aria-hidden="true">→</i> ${rate(vertex.inRate)}`}</span>
          <span>${vertex.isSink ? "sink" : html`${rate(vertex.outRate)} <i aria-hidden="true">→</i>`}</span>
        </span>
        <span class="load" aria-hidden="true">
          <${Shares} busy=${vertex.busy} held=${vertex.held} idle=${vertex.idle} />
          <span class="figure">${vertex.busy === null ? "" :
            vertex.held >= 0.5 ? `${percent(vertex.held)} held` : `${percent(vertex.busy)} busy`}</span>
        </span>
      </a>`;
  }
}

// Which card an arrow key leads to: the nearest in that direction.
function neighbour(places, from, key) {
  const here = places.get(from);
  const ahead = {
    ArrowRight: (p) => [p.x - here.x, p.y - here.y], ArrowLeft: (p) => [here.x - p.x, p.y - here.y],
    ArrowDown: (p) => [p.y - here.y, p.x - here.x], ArrowUp: (p) => [here.y - p.y, p.x - here.x],
  }[key];
  let best = null;
  for (const [id, place] of places) {
    const [along, across] = ahead(place);
    if (along <= 1) continue;
    const far = along + 2 * Math.abs(across);
    if (best === null || far < best.far) best = { id, far };
  }
  return best?.id ?? null;
}

// `children`: what stands above it.
export function Graph({ vertices, hrefOf, children }) {
  const plan = vertices.map((one) => `${one.id}<${one.inputs.map((i) => `${i.id}:${i.ship_strategy}`)}`).join("|");
  const found = useMemo(() => layOut(vertices), [plan]);
  const place = useRef(null);
  const [room, setRoom] = useState(0);
  const [chosen, setZoom] = useState(null); // null: as large as fits
  const [current, setCurrent] = useState(vertices[0]?.id);

  useEffect(() => {
    const resized = new ResizeObserver(([entry]) => setRoom(entry.contentRect.width));
    resized.observe(place.current);
    return () => resized.disconnect();
  }, []);
  useEffect(() => setCurrent(vertices[0]?.id), [plan]);

  const fit = room ? Math.max(SMALLEST, Math.min(1, room / found.width, TALLEST / found.height)) : 1;
  const zoom = chosen ?? Math.max(fit, READABLE);
  const keyed = (event) => {
    if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
    const next = neighbour(found.places, current, event.key);
    if (next === null) return;
    setCurrent(next);
    const card = [...place.current.querySelectorAll(".card")].find((one) => one.dataset.vertex === next);
    card.focus({ preventScroll: true });
    card.scrollIntoView({ block: "nearest", inline: "nearest" });
  };
  const drag = useDragged(place);
  const step = (factor) => setZoom(Math.min(2, Math.max(SMALLEST, zoom * factor)));
  const size = { width: `${found.width * zoom}px`, height: `${found.height * zoom}px` };
  const scaled = { width: `${found.width}px`, height: `${found.height}px`, transform: `scale(${zoom})` };

  return html`
    <div class="graph">
      <div class="panel-head">
      ${children}
      <div class="zoom" role="group" aria-label="Size of the graph">
        <button type="button" class="small" onClick=${() => step(1 / 1.25)} aria-label="Smaller">−</button>
        <button type="button" class="small" onClick=${() => setZoom(fit)}>Fit</button>
        <button type="button" class="small" onClick=${() => step(1.25)} aria-label="Larger">+</button>
      </div>
      </div>
      <div class="canvas" ref=${place} role="group" onKeyDown=${keyed} ...${drag}
        aria-label="Job graph of ${vertices.length} vertices. Arrow keys go from one to the next; the table below has the same figures.">
        <div class="sized" style=${size}>
          <div class="scaled" style=${scaled}>
            <${Edges} found=${found} />
            ${vertices.map((one) => html`
              <${Card} key=${one.id} vertex=${one} place=${found.places.get(one.id)} href=${hrefOf(one)}
                current=${one.id === current} take=${() => setCurrent(one.id)} />`)}
          </div>
        </div>
      </div>
    </div>`;
}

class Edges extends Component {
  shouldComponentUpdate(next) {
    return next.found !== this.props.found;
  }

  render({ found }) {
    return html`
      <svg class="edges" width=${found.width} height=${found.height} aria-hidden="true">
        <defs>
          <marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
            <path d="M0 0.5 7.5 4 0 7.5z" />
          </marker>
        </defs>
        ${found.edges.map((edge) => html`<path key=${edge.key} class="edge" d=${edge.path} marker-end="url(#tip)" />`)}
        ${found.edges.map((edge) => html`
          <text key=${edge.key} x=${edge.middle.x} y=${edge.middle.y - 6}>${ship(edge.ship)}</text>`)}
      </svg>`;
  }
}

const ship = (text) => {
  const kind = String(text).replace(/\(.*/s, "").toLowerCase();
  return kind.length > 12 ? `${kind.slice(0, 11)}…` : kind;
};

// The graph is moved by dragging what is between the cards.
function useDragged(place) {
  const from = useRef(null);
  return {
    onPointerDown: (event) => {
      if (event.button !== 0 || event.pointerType !== "mouse" || event.target.closest(".card")) return;
      const it = place.current;
      from.current = { x: event.clientX + it.scrollLeft, y: event.clientY + it.scrollTop };
      it.setPointerCapture(event.pointerId);
    },
    onPointerMove: (event) => {
      if (!from.current) return;
      place.current.scrollLeft = from.current.x - event.clientX;
      place.current.scrollTop = from.current.y - event.clientY;
    },
    onPointerUp: () => {
      from.current = null;
    },
  };
}
