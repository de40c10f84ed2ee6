// A table that can be sorted, and shows a page at a time: a thousand subtasks are a thousand rows.

import { announce, Empty } from "./basics.js";
import { count } from "../format.js";
import { html, useMemo, useState } from "../view.js";

const PAGE = 50;

function compare(a, b) {
  const unknownA = a === null || a === undefined;
  const unknownB = b === null || b === undefined;
  if (unknownA || unknownB) return unknownA - unknownB; // what is not known comes last
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

// `columns`: { id, title, value: row -> to sort by, show: row -> what is seen, number, note, sort }.
// `rows` have an `id`.
export function Table({ caption, columns, rows, initial = null, page = PAGE, empty = "Nothing yet.", marked }) {
  const [order, setOrder] = useState(initial); // { id, down }
  const [at, setAt] = useState(0);
  const column = columns.find((one) => one.id === order?.id);
  const sorted = useMemo(() => {
    if (!column) return rows;
    const keyed = rows.map((row) => [column.value(row), row]);
    const known = keyed.filter(([key]) => key !== null && key !== undefined);
    const unknown = keyed.filter(([key]) => key === null || key === undefined);
    known.sort(([a], [b]) => (order.down ? compare(b, a) : compare(a, b)));
    return [...known, ...unknown].map(([, row]) => row);
  }, [rows, column, order]);
  const pages = Math.max(1, Math.ceil(sorted.length / page));
  const here = Math.min(at, pages - 1);
  const shown = sorted.slice(here * page, (here + 1) * page);

  const sortBy = (one) => {
    const down = order?.id === one.id ? !order.down : Boolean(one.number);
    setOrder({ id: one.id, down });
    setAt(0);
    announce(`sorted by ${one.title}, ${down ? "descending" : "ascending"}`);
  };
  const heading = (one) => {
    const mine = order?.id === one.id;
    const sort = mine ? (order.down ? "descending" : "ascending") : undefined;
    const text = one.sort === false ? one.title : html`
      <button type="button" class="sort" onClick=${() => sortBy(one)}>
        ${one.title}<span aria-hidden="true" class="arrow">${mine ? (order.down ? "↓" : "↑") : ""}</span>
      </button>`;
    return html`<th key=${one.id} scope="col" class=${one.number ? "number" : ""} aria-sort=${sort}
      title=${one.note}>${text}</th>`;
  };

  return html`
    <div class="table" role="region" aria-label=${caption} tabindex="0">
      <table>
        <caption class="unseen">${caption}</caption>
        <thead><tr>${columns.map(heading)}</tr></thead>
        <tbody>
          ${shown.map((row) => html`
            <tr key=${row.id} class=${marked?.(row) ? "marked" : ""}>
              ${columns.map((one, i) => html`
                <${i === 0 ? "th" : "td"} key=${one.id} scope=${i === 0 ? "row" : undefined}
                  class=${one.number ? "number" : (one.kind ?? "")}>
                  ${(one.show ?? one.value)(row)}
                <//>`)}
            </tr>`)}
        </tbody>
      </table>
      ${rows.length ? null : html`<${Empty}>${empty}<//>`}
    </div>
    ${pages > 1 ? html`<${Pages} at=${here} of=${pages} rows=${sorted.length} page=${page} go=${setAt} what=${caption} />` : null}`;
}

function Pages({ at, of, rows, page, go, what }) {
  const first = at * page + 1;
  const last = Math.min(rows, (at + 1) * page);
  const step = (to) => {
    go(to);
    announce(`page ${to + 1} of ${of}`);
  };
  return html`
    <nav class="pages" aria-label="Pages of ${what}">
      <button type="button" class="small" disabled=${at === 0} onClick=${() => step(0)} aria-label="First page">«</button>
      <button type="button" class="small" disabled=${at === 0} onClick=${() => step(at - 1)} aria-label="Page before">‹</button>
      <span>${count(first)}–${count(last)} of ${count(rows)}</span>
      <button type="button" class="small" disabled=${at >= of - 1} onClick=${() => step(at + 1)} aria-label="Next page">›</button>
      <button type="button" class="small" disabled=${at >= of - 1} onClick=${() => step(of - 1)} aria-label="Last page">»</button>
    </nav>`;
}
