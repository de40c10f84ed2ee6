// What the job was told, and what its operators run as.

import { Empty } from "../parts/basics.js";
import { Table } from "../parts/table.js";
import { usePolled } from "../polling.js";
import { html, useMemo, useState } from "../view.js";

const COLUMNS = [
  { id: "key", title: "Option", value: (row) => row.key, kind: "mono" },
  { id: "value", title: "Value", value: (row) => row.value, kind: "mono" },
  { id: "group", title: "Of", value: (row) => row.group },
];
const OPERATORS = [
  { id: "name", title: "Operator", value: (row) => row.name, kind: "name" },
  { id: "implementation", title: "Runs as", value: (row) => row.implementation },
  { id: "uid", title: "uid", value: (row) => row.uid, kind: "mono" },
  { id: "id", title: "Id", value: (row) => row.operator, kind: "mono" },
  { id: "vertex", title: "In vertex", value: (row) => row.vertex, kind: "name" },
];

export function ConfigurationPage({ path, now }) {
  const { data, error } = usePolled(`${path}/config`);
  const [wanted, want] = useState("");
  const rows = useMemo(() => (data ? rowsOf(data) : []), [data]);
  const shown = rows.filter((row) => `${row.key} ${row.value}`.toLowerCase().includes(wanted.trim().toLowerCase()));
  const operators = useMemo(() => now.vertices.flatMap((vertex) => vertex.operators.map((one) => ({
    ...one, operator: one.id, id: `${vertex.id} ${one.id}`, vertex: vertex.name,
  }))), [now.vertices]);
  if (!data) return html`<${Empty}>${error ? error.message : "Asking the server…"}<//>`;
  return html`
    <section>
      <div class="panel-head"><h2>Configuration</h2>
        <label class="field inline">Find
          <input type="search" value=${wanted} onInput=${(event) => want(event.target.value)} /></label></div>
      <${Table} caption="Configuration of the job" columns=${COLUMNS} rows=${shown} page=${100}
        empty=${rows.length ? "No option has that." : "The job was told nothing."} />
    </section>
    <section>
      <h2>Operators</h2>
      <${Table} caption="Operators of the job" columns=${OPERATORS} rows=${operators} />
    </section>`;
}

function rowsOf(data) {
  const execution = data["execution-config"];
  const said = (group, of) => Object.entries(of).map(([key, value]) => ({
    id: `${group} ${key}`, group, key, value: typeof value === "string" ? value : JSON.stringify(value),
  }));
  return [
    ...said("parameters", execution["user-config"]),
    ...said("job", data.configuration ?? {}),
  ];
}
