// Draws `plots` as SVG. Pointing shows values, dragging zooms along x, a double click returns, a name
// in the legend hides its curve.
const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { left: 52, right: 12, top: 20, bottom: 40 };
const GAP = 14;

function element(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

const number = (value) => {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(3).replace(/\.?0+e\+?/, "e");
  return String(Number(value.toPrecision(4)));
};

// About `count` ticks at 1, 2 or 5 times a power of ten.
function ticks(from, until, count) {
  const rough = (until - from) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= until + 1e-9 * step; i++) found.push([i * step, number(i * step)]);
  return found;
}

// The pieces of a broken line. Dashes and gaps are lengths across the panel, whatever the curve climbs.
function dashes(points, style) {
  if (!style.length) return [points];
  let [part, left, on] = [0, style[0], true];
  const pieces = [[points[0]]];
  for (let i = 1; i < points.length; i++) {
    let [from, to] = [points[i - 1], points[i]];
    while (to[0] - from[0] > left) {
      const at = [from[0] + left, from[1] + ((to[1] - from[1]) * left) / (to[0] - from[0])];
      if (on) pieces.at(-1).push(at); else pieces.push([at]);
      part = (part + 1) % style.length;
      [from, left, on] = [at, style[part], !on];
    }
    left -= to[0] - from[0];
    if (on) pieces.at(-1).push(to);
  }
  return pieces.filter((piece) => piece.length > 1);
}

class Scale {
  constructor({ from, until, log, ticks }, start, end) {
    Object.assign(this, { from, until, log, ticks, start, end });
  }
  place(value) {
    const part = this.log ? Math.log(value / this.from) / Math.log(this.until / this.from) : (value - this.from) / (this.until - this.from);
    return this.start + part * (this.end - this.start);
  }
  value(place) {
    const part = (place - this.start) / (this.end - this.start);
    return this.log ? this.from * (this.until / this.from) ** part : this.from + part * (this.until - this.from);
  }
}

class Plot {
  constructor(place, row) {
    Object.assign(this, { place, row, hidden: new Set(), zoom: null });
    this.width = place.clientWidth;
    this.height = place.clientHeight;
    this.tip = document.createElement("div");
    this.tip.className = "tip";
    this.draw();
  }

  shown(panel) {
    return panel.curves.filter((curve) => !this.hidden.has(curve.name));
  }

  // The axes: as given, or fitted to what the zoom leaves of the curves.
  axes() {
    const { x, y, panels } = this.row;
    if (!this.zoom) return [x, y];
    const [from, until] = this.zoom;
    let [low, high] = y.log ? [Infinity, -Infinity] : [0, -Infinity];
    for (const curve of panels.flatMap((panel) => this.shown(panel)))
      curve.x.forEach((at, i) => {
        const value = curve.y[i];
        if (value === null || at < from || at > until) return;
        [low, high] = [Math.min(low, value), Math.max(high, value)];
      });
    const fitted = high > low ? { ...y, from: low, until: y.log ? high : high + 0.04 * (high - low) } : y;
    const within = (axis, count) => axis.log ? axis.ticks.filter(([at]) => at >= axis.from && at <= axis.until) : ticks(axis.from, axis.until, count);
    const across = { ...x, from, until };
    return [{ ...across, ticks: within(across, 6) }, { ...fitted, ticks: within(fitted, 5) }];
  }

  draw() {
    const { row, width, height } = this;
    const svg = element("svg", { width, height: height - 26, role: "img", "aria-label": row.title });
    const [x, y] = this.axes();
    const count = row.panels.length;
    // Names stand at the curves' ends where one panel has few enough.
    const direct = count === 1 && row.legend.length > 1 && row.legend.length <= 8 && width > 560;
    const right = direct ? 8 + 6.6 * Math.max(...row.legend.map(([name]) => Math.min(name.length, 18))) : MARGIN.right;
    const wide = (width - MARGIN.left - right - GAP * (count - 1)) / count;
    const [top, bottom] = [MARGIN.top, height - 26 - MARGIN.bottom];
    const up = new Scale(y, bottom, top);
    this.panels = row.panels.map((panel, i) => {
      const start = MARGIN.left + i * (wide + GAP);
      const across = new Scale(x, start, start + wide);
      this.frame(svg, panel, across, up, i === 0);
      const clip = `${this.place.id}c${i}`;
      const inside = element("clipPath", { id: clip });
      inside.append(element("rect", { x: start, y: top - 2, width: wide, height: bottom - top + 4 }));
      const curves = element("g", { "clip-path": `url(#${clip})` });
      // Summaries exclude the warm-up.
      if (panel.warmup > across.from) {
        const width = Math.min(across.place(panel.warmup), start + wide) - start;
        curves.append(element("rect", { x: start, y: top, width, height: bottom - top, class: "band" }));
        if (width > 50) curves.append(element("text", { x: start + 4, y: bottom - 6, class: "warmup" }, "warm-up"));
      }
      for (const at of panel.marks.map((time) => across.place(time)))
        curves.append(element("line", { x1: at, x2: at, y1: top, y2: bottom, class: "mark" }));
      // The first curve is on top, and faint ones are beneath.
      const drawn = this.shown(panel).reverse();
      for (const curve of drawn) this.range(curves, curve, across, up);
      for (const curve of [...drawn.filter((c) => c.faint), ...drawn.filter((c) => !c.faint)]) this.line(curves, curve, across, up);
      svg.append(inside, curves);
      if (direct) this.names(svg, panel, across, up);
      return { panel, across };
    });
    svg.append(element("text", { x: (MARGIN.left + width - right) / 2, y: height - 30, class: "title" }, row.xTitle));
    this.cross = element("line", { y1: top, y2: bottom, class: "cross", visibility: "hidden" });
    this.band = element("rect", { y: top, height: bottom - top, class: "band", visibility: "hidden" });
    svg.append(this.cross, this.band);
    this.listen(svg);
    this.place.replaceChildren(this.legend(), svg, this.tip);
  }

  frame(svg, panel, across, up, first) {
    for (const [value, label] of up.ticks) {
      const at = up.place(value);
      svg.append(element("line", { x1: across.start, x2: across.end, y1: at, y2: at, class: "grid" }));
      if (first) svg.append(element("text", { x: across.start - 6, y: at + 4, class: "left" }, label));
    }
    // Labels keep clear of each other, and of the panel's on the left.
    if (first) this.free = -Infinity;
    for (const [value, label] of across.ticks) {
      const at = across.place(value);
      svg.append(element("line", { x1: at, x2: at, y1: up.start, y2: up.start + 4, class: "axis" }));
      const half = 3.6 * label.length;
      if (at - half < this.free) continue;
      this.free = at + half + 6;
      svg.append(element("text", { x: at, y: up.start + 17, class: "under" }, label));
    }
    svg.append(element("line", { x1: across.start, x2: across.end, y1: up.start, y2: up.start, class: "axis" }));
    if (panel.label) svg.append(element("text", { x: (across.start + across.end) / 2, y: up.end - 7, class: "panel" }, panel.label));
  }

  // The range about a curve.
  range(into, curve, across, up) {
    const edge = (which) => curve.band.map((at) => `${across.place(at[0]).toFixed(1)},${up.place(at[which]).toFixed(1)}`);
    if (curve.band.length > 1) into.append(element("polygon", { points: [...edge(2), ...edge(1).reverse()].join(" "), class: "range", fill: curve.colour }));
  }

  line(into, curve, across, up) {
    const runs = [];
    let before = false;
    curve.y.forEach((value, i) => {
      const known = value !== null && (!up.log || value > 0);
      if (known && !before) runs.push([]);
      if (known) runs.at(-1).push([across.place(curve.x[i]), up.place(value)]);
      before = known;
    });
    // A point alone makes no line.
    for (const [cx, cy] of runs.filter((run) => curve.dotted || run.length === 1).flat())
      into.append(element("circle", { cx: cx.toFixed(1), cy: cy.toFixed(1), r: curve.dotted ? 3 : 4, fill: curve.colour }));
    const at = ([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`;
    const d = runs.flatMap((run) => dashes(run, curve.faint ? [] : curve.dash)).map((piece) => `M${piece.map(at).join("L")}`).join("");
    into.append(element("path", { d, class: curve.faint ? "curve faint" : "curve", stroke: curve.colour }));
  }

  // Names at the last values in sight, moved apart where they would overlap.
  names(svg, panel, across, up) {
    const all = this.shown(panel).filter((curve) => !curve.faint).map((curve) => {
      let i = curve.x.length - 1;
      while (i >= 0 && (curve.y[i] === null || curve.x[i] > across.until)) i--;
      return i < 0 ? null : { curve, x: across.place(curve.x[i]), at: Math.max(up.end, Math.min(up.start, up.place(curve.y[i]))) };
    }).filter((end) => end && Number.isFinite(end.at)).sort((a, b) => a.at - b.at);
    // A curve that ends earlier has its name under its end, or over it at the bottom.
    const early = all.filter(({ x }) => x < across.end - 0.03 * (across.end - across.start));
    const ends = all.filter((end) => !early.includes(end));
    ends.forEach((end, i) => { if (i) end.at = Math.max(end.at, ends[i - 1].at + 13); });
    for (let i = ends.length - 1, most = up.start + 4; i >= 0; i--, most -= 13) ends[i].at = Math.min(ends[i].at, most);
    const places = ends.map(({ curve, at }) => [curve, across.end + 6, at + 4]);
    for (const { curve, x, at } of early) places.push([curve, x, at > up.start - 24 ? at - 8 : at + 16]);
    for (const [curve, x, y] of places) {
      const name = curve.name.length > 18 ? `${curve.name.slice(0, 17)}…` : curve.name;
      svg.append(element("text", { x, y, class: "name", fill: curve.colour }, name));
    }
  }

  legend() {
    const list = document.createElement("div");
    list.className = "legend";
    // A median over faint curves is named, too.
    const crowd = this.row.panels.some((panel) => panel.curves.some((curve) => curve.faint));
    if (this.row.legend.length < 2 && !crowd) return list;
    for (const [name, colour] of this.row.legend) {
      const button = document.createElement("button");
      const mark = document.createElement("i");
      mark.style.background = colour;
      button.append(mark, name);
      button.setAttribute("aria-pressed", !this.hidden.has(name));
      button.onclick = () => {
        if (!this.hidden.delete(name)) this.hidden.add(name);
        this.draw();
      };
      list.append(button);
    }
    return list;
  }

  listen(svg) {
    let from = null;
    const near = (event) => {
      const left = event.clientX - svg.getBoundingClientRect().left;
      const inside = this.panels.find(({ across }) => left >= across.start - GAP / 2 && left <= across.end + GAP / 2);
      return inside && { ...inside, left: Math.max(inside.across.start, Math.min(inside.across.end, left)) };
    };
    const hide = () => {
      this.cross.setAttribute("visibility", "hidden");
      this.tip.style.display = "none";
    };
    svg.onpointerdown = (event) => { from = near(event) ?? null; };
    svg.onpointerleave = () => { hide(); };
    svg.onpointermove = (event) => {
      const at = near(event);
      if (!at) return hide();
      if (from && event.buttons && Math.abs(at.left - from.left) > 4) {
        const [a, b] = [from.left, Math.max(from.across.start, Math.min(from.across.end, at.left))].sort((a, b) => a - b);
        for (const [key, value] of [["x", a], ["width", b - a], ["visibility", "visible"]]) this.band.setAttribute(key, value);
      }
      this.tell(at);
    };
    svg.onpointerup = (event) => {
      const at = from && near(event);
      if (at && Math.abs(at.left - from.left) > 4) {
        const left = Math.max(from.across.start, Math.min(from.across.end, at.left));
        this.zoom = [from.across.value(from.left), from.across.value(left)].sort((a, b) => a - b);
        this.draw();
      }
      from = null;
    };
    svg.ondblclick = () => { this.zoom = null; this.draw(); };
  }

  // The values of all curves at the pointer, the largest first.
  tell({ panel, across, left }) {
    const x = across.value(left);
    const found = this.shown(panel).filter((curve) => !curve.faint).map((curve) => {
      let [low, high] = [0, curve.x.length - 1];
      while (low < high) {
        const middle = (low + high) >> 1;
        if (curve.x[middle] < x) low = middle + 1; else high = middle;
      }
      if (low > 0 && x - curve.x[low - 1] < curve.x[low] - x) low--;
      return { curve, x: curve.x[low], y: curve.y[low] };
    }).filter(({ x, y }) => y !== null && y !== undefined && Math.abs(across.place(x) - left) < 24);
    if (!found.length) return;
    const at = across.place(found[0].x);
    this.cross.setAttribute("x1", at);
    this.cross.setAttribute("x2", at);
    this.cross.setAttribute("visibility", "visible");
    found.sort((a, b) => b.y - a.y);
    this.tip.replaceChildren(number(found[0].x), ...found.map(({ curve, y }) => {
      const line = document.createElement("div");
      const mark = document.createElement("i");
      mark.style.background = curve.colour;
      line.append(mark, `${curve.name} ${number(y)}`);
      return line;
    }));
    this.tip.style.display = "block";
    const room = this.width - at - this.tip.offsetWidth - 12;
    this.tip.style.left = `${room > 0 ? at + 12 : Math.max(0, at - 12 - this.tip.offsetWidth)}px`;
  }
}

// A page may hold a hundred plots: each is drawn when it is about to be seen.
const drawn = new Map();
const resized = new ResizeObserver((entries) => entries.forEach(({ target }) => {
  const plot = drawn.get(target);
  if (!plot || plot.width === target.clientWidth) return;
  plot.width = target.clientWidth;
  plot.draw();
}));
const watch = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    watch.unobserve(target);
    drawn.set(target, new Plot(target, plots[Number(target.id.slice("plot".length))]));
    resized.observe(target);
  }
}, { rootMargin: "800px" });
plots.forEach((_, i) => watch.observe(document.getElementById(`plot${i}`)));
