// A chart over time, drawn by uPlot on a canvas. What it shows last is beside its title, as text.

import { html, useEffect, useLayoutEffect, useRef } from "../view.js";
import { useTheme } from "../theme.js";

const HEIGHT = 150;

const color = (name) => getComputedStyle(document.body).getPropertyValue(`--${name}`).trim();

// A canvas does not know `light-dark()`: the browser is asked which of the two it is now.
function resolved(name) {
  const probe = document.createElement("i");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found || color(name);
}

function faint(found, share = 0.12) {
  const parts = found.match(/[\d.]+/g) ?? ["128", "128", "128"];
  return `rgba(${parts.slice(0, 3).join(", ")}, ${share})`;
}

const DOUBLINGS = Array.from({ length: 50 }, (_, i) => 2 ** i); // steps of an axis of bytes

function options({ lines, format, width, height, span, binary, gaps, onPick }) {
  const text = resolved("text-2");
  const grid = { stroke: resolved("line"), width: 1 };
  const axis = { stroke: text, grid, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  return {
    width,
    height,
    pxAlign: 1,
    padding: [10, 14, 0, 0],
    cursor: { y: false, points: { size: 6 }, bind: onPick ? { click: onPick } : {} },
    legend: { show: false },
    scales: {
      x: { time: true, range: (self) => range(self.data[0], span) },
      y: { range: (self, least, most) => [Math.min(0, least ?? 0), Math.max(most ?? 0, 1e-9) * 1.1] },
    },
    axes: [
      { ...axis, space: 70, size: 24, values: times },
      {
        ...axis, space: 30, size: 62, incrs: binary ? DOUBLINGS : undefined,
        values: (self, ticks) => ticks.map((tick) => format(tick)),
      },
    ],
    series: [
      {},
      ...lines.map((line) => {
        const stroke = resolved(line.color);
        return {
          label: line.title,
          stroke,
          width: line.bars ? 0 : 1.75,
          fill: line.bars ? faint(stroke, 0.55) : lines.length === 1 || line.fill ? faint(stroke) : undefined,
          dash: line.dash,
          paths: line.bars ? globalThis.uPlot.paths.bars({ size: [0.7, 26, 3], radius: 0.15 }) : undefined,
          points: { show: false },
          spanGaps: !gaps,
        };
      }),
    ],
  };
}

// The last minute at least. (What uPlot takes for the range of one moment is a day.)
function range(moments, span) {
  if (!moments.length) return [0, 1];
  const least = moments[0];
  const most = moments.at(-1);
  if (span) {
    const margin = Math.max(2, (most - least) * 0.05);
    return [least - margin, most + margin];
  }
  return most - least < 60 ? [most - 60, most] : [least, most];
}

function times(self, ticks) {
  const step = ticks.length > 1 ? ticks[1] - ticks[0] : 60;
  return ticks.map((tick) => {
    const at = new Date(tick * 1000);
    const two = (n) => String(n).padStart(2, "0");
    const minutes = `${two(at.getHours())}:${two(at.getMinutes())}`;
    return step < 60 ? `${minutes}:${two(at.getSeconds())}` : minutes;
  });
}

// `lines`: { title, color (a variable of the style), dash, fill, bars }; `data`: [times in s, ...values].
// `last`: what the title row says, a text per line.
export function Chart({ title, lines, data, format, span = false, binary = false, gaps = true, height = HEIGHT, note, last, onPick }) {
  const place = useRef(null);
  const plot = useRef(null);
  const theme = useTheme();
  const pick = useRef(onPick);
  pick.current = onPick;

  useLayoutEffect(() => {
    const holder = place.current;
    const made = () => {
      plot.current?.destroy();
      const click = onPick && ((self) => (event) => pick.current(self.cursor.idx, event));
      const width = Math.max(120, holder.clientWidth);
      plot.current = new globalThis.uPlot(
        options({ lines, format, width, height, span, binary, gaps, onPick: click }), data, holder,
      );
    };
    made();
    const resized = new ResizeObserver(() => {
      const width = Math.max(120, holder.clientWidth);
      if (plot.current && plot.current.width !== width) plot.current.setSize({ width, height });
    });
    resized.observe(holder);
    return () => {
      resized.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [theme, lines.length]);

  useEffect(() => plot.current?.setData(data), [data]);

  const said = last ?? lines.map((line, i) => format(data[i + 1]?.at(-1) ?? null));
  return html`
    <figure class="chart">
      <figcaption>
        <h3>${title}</h3>
        <span class="lines">
          ${lines.map((line, i) => html`
            <span key=${line.title}><i class="dot" style=${{ background: `var(--${line.color})` }}></i>
              <span class="what">${line.title}</span> <b>${said[i]}</b></span>`)}
        </span>
        ${note ? html`<small>${note}</small>` : null}
      </figcaption>
      <div class="plot" ref=${place} aria-hidden="true"></div>
    </figure>`;
}
