const dark = matchMedia("(prefers-color-scheme: dark)");
const config = { responsive: true, displaylogo: false, plotlyServerURL: "", modeBarButtonsToRemove: ["select2d", "lasso2d"] };

function dressed(layout) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const full = {
    ...layout, autosize: true, hovermode: "x unified", paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 56, r: 8, t: 56, b: 46 }, font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("--muted") },
    legend: { orientation: "h", traceorder: "reversed", x: 0, xanchor: "left", y: 1.1, yanchor: "bottom", font: { color: colour("--ink") } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--rule"), activecolor: colour("--muted") },
    hoverlabel: { bgcolor: colour("--card"), bordercolor: colour("--rule"), font: { color: colour("--ink") } },
  };
  for (const key of Object.keys(full).filter((k) => /^[xy]axis/.test(k)))
    full[key] = { ...full[key], gridcolor: colour("--grid"), linecolor: colour("--muted"), zerolinecolor: colour("--muted"),
      showline: key[0] === "x", ticks: key[0] === "x" ? "outside" : "", tickcolor: colour("--muted") };
  return full;
}

// A page may hold a hundred plots: each is drawn when it is about to be seen.
const drawn = new Set();
// Where there is little room its buttons would lie over the legend: fingers zoom without them.
const buttons = (width) => ({ ...config, displayModeBar: width < 600 ? false : "hover" });
const draw = (i) => {
  const place = document.getElementById(`plot${i}`);
  return Plotly.react(place, plots[i].data, dressed(plots[i].layout), buttons(place.clientWidth));
};
const watch = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    const i = Number(target.id.slice("plot".length));
    watch.unobserve(target);
    drawn.add(i);
    draw(i);
  }
}, { rootMargin: "800px" });
plots.forEach((_, i) => watch.observe(document.getElementById(`plot${i}`)));
dark.addEventListener("change", () => drawn.forEach(draw));
