// A line plot of the last minutes, as an SVG with CSS styles.

import { h, s, put } from "./dom.js";

const WIDE = 480, HIGH = 120, TOP = 6;

/**
 * A plot: lines are [{name, kind, at(sample)}], `show` formats a number. Noisy values are drawn as
 * the mean of `mean` samples.
 */
export function plot(title, lines, show, { least = 1, mean = 1 } = {}) {
  const values = lines.map((line) => h(`span.value.${line.kind}`));
  const legend = h("div.legend", lines.map((line, number) =>
    h("span.key", h(`i.swatch.${line.kind}`), h("span", line.name), values[number])));
  const paths = lines.map((line) => s(`path.line.${line.kind}`));
  const area = s("path.area");
  const grid = [0.5, 1].map(() => s("line.grid", { x1: 0, x2: WIDE }));
  const drawing = s("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    grid, area, paths);
  const top = h("span.top"), start = h("span.start"), end = h("span.end", "now");
  const element = h("figure.plot", { "aria-label": title },
    h("figcaption", h("h3", title)), legend,
    h("div.canvas", drawing, top), h("div.axis", start, end));
  let scale = least;

  /** Samples in order, and the time span to show. */
  function update(samples, now, spanMs) {
    let most = least;
    const drawn = lines.map((line) => smooth(samples.map((sample) => line.at(sample)), mean));
    for (const values of drawn) for (const value of values) most = Math.max(most, value ?? 0);
    // The scale shrinks slowly, so that the picture does not jump.
    const wanted = nice(most);
    scale = wanted > scale || wanted < scale / 4 ? wanted : scale;
    put(top, show(scale));
    put(start, `${Math.round(spanMs / 60000)} min ago`);
    grid.forEach((one, number) => {
      const y = HIGH - (HIGH - TOP) * (number + 1) / 2;
      one.setAttribute("y1", y);
      one.setAttribute("y2", y);
    });
    lines.forEach((line, number) => {
      const { path, under } = draw(drawn[number], samples, now, spanMs);
      paths[number].setAttribute("d", path);
      if (number === 0) area.setAttribute("d", under);
      const last = [...samples].reverse().find((sample) => line.at(sample) !== null);
      put(values[number], last === undefined ? "–" : show(line.at(last)));
    });
  }

  function draw(values, samples, now, spanMs) {
    let path = "", first = null, x = 0;
    let pen = "M";
    for (const [number, value] of values.entries()) {
      if (value === null) continue; // no events: connect to the next point
      x = Math.max(WIDE * (1 - (now - samples[number][0]) / spanMs), 0);
      const y = HIGH - Math.min(value / scale, 1) * (HIGH - TOP);
      first ??= x;
      path += `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
      pen = "L";
    }
    return { path, under: first === null ? "" : `${path}L${x.toFixed(1)} ${HIGH}L${first.toFixed(1)} ${HIGH}Z` };
  }

  return { element, update };
}

/** The moving average of values. */
function smooth(values, mean) {
  if (mean === 1) return values;
  return values.map((_, number) => {
    const some = values.slice(Math.max(number - mean + 1, 0), number + 1);
    return some.reduce((sum, value) => sum + value, 0) / some.length;
  });
}

/** The next round number. */
export function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}
