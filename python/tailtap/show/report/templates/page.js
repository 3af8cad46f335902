"use strict";
// Draws the figures, gives them the page's colours, and shows and hides runs.
window.tailtap = (() => {
  const units = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];

  // A time in ns as the tables write it, with at most three decimals.
  function time(ns) {
    const [unit, size] = units.find(([, size]) => Math.abs(ns) >= size) ?? units[3];
    return `${Number((ns / size).toFixed(3))}\u00a0${unit}`;
  }
  // A packet rate as the tables write it.
  function rate(packets) {
    const [unit, size] = [["Mpkt/s", 1e6], ["kpkt/s", 1e3], ["pkt/s", 1]].find(([, size]) => packets >= size)
      ?? ["pkt/s", 1];
    return `${Number((packets / size).toFixed(3))}\u00a0${unit}`;
  }
  const group = (n) => Math.round(n).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");
  const count = (n) => n >= 1 ? group(n) : "";
  // The percentile at x = 1/(1-p), with as many digits as its number of nines deserves.
  function percent(x) {
    const digits = Math.max(1, Math.ceil(Math.log10(Math.max(x, 1))));
    return `${(100 * (1 - 1 / x)).toFixed(digits)}\u00a0%`;
  }

  async function unpack(id) {
    const text = document.getElementById(id).textContent.trim();
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return await new Response(stream).text();
  }

  // What other scripts of the page add: their figures' kinds, and start, paint and reading of these.
  const parts = [];
  const state = { hidden: new Set(), bands: true, runs: [], plots: [], printing: false };
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const darkMedia = matchMedia("(prefers-color-scheme: dark)");

  function marks() {
    const all = [];
    for (const plot of state.plots)
      for (const renderer of plot.renderers)
        if (renderer.tags.length) all.push({ renderer, ...renderer.tags[0] });
    return all;
  }

  function paint() {
    const dark = darkMedia.matches && !state.printing;
    const [text, muted, axis, grid] = ["--text", "--muted", "--axis", "--grid"].map(colour);
    for (const plot of state.plots) {
      plot.setv({ outline_line_color: null, background_fill_color: null, border_fill_color: null });
      for (const side of [...plot.below, ...plot.left]) {
        if (side.ticker === undefined) continue;
        side.setv({
          axis_line_color: axis, major_tick_line_color: axis, minor_tick_line_color: null,
          major_label_text_color: muted, axis_label_text_color: text,
          major_label_text_font_size: "12px", axis_label_text_font_size: "12.5px",
          major_label_text_font: "system-ui, Liberation Sans, sans-serif",
          axis_label_text_font: "system-ui, Liberation Sans, sans-serif",
        });
      }
      for (const part of plot.center)
        if (part.dimension !== undefined) {
          part.grid_line_color = grid;
          if (part.minor_grid_line_alpha < 1) part.minor_grid_line_color = grid;
        } else if (part.type === "Span") part.line_color = axis;
      for (const tool of plot.toolbar.tools)
        if (tool.type === "CrosshairTool") tool.overlay.line_color = axis;
    }
    for (const { renderer, role, light, dark: shade } of marks()) {
      if (light === undefined) continue;
      const own = dark ? shade : light;
      const glyph = renderer.glyph;
      if (role === "band") glyph.setv({ fill_color: own, fill_alpha: dark ? 0.2 : 0.14 });
      else if (role === "fill") glyph.setv({ fill_color: own, fill_alpha: 0.22 });
      else if (role === "bar") glyph.setv({ fill_color: own });
      else if (role === "slab") glyph.setv({ fill_color: own, line_color: own });
      else if (role === "dots") glyph.setv({ fill_color: own, fill_alpha: 0.6 });
      else if (role === "point") glyph.setv({ fill_color: own, line_color: own });
      else if (role === "hollow") glyph.setv({ fill_color: null, line_color: own });
      else if (role !== "hit") glyph.setv({ line_color: own });
    }
    for (const part of parts) part.paint(dark);
  }

  function show() {
    for (const { renderer, run, role } of marks())
      renderer.visible = !state.hidden.has(run) && (role !== "band" || state.bands);
    const of = (place) => state.runs.flatMap((run, i) => run.group === place ? [i] : []);
    for (const button of document.querySelectorAll(".legend .repeat"))
      button.setAttribute("aria-pressed", String(!state.hidden.has(Number(button.dataset.run))));
    for (const button of document.querySelectorAll(".legend .group")) {
      const shown = of(Number(button.dataset.group)).some((run) => !state.hidden.has(run));
      button.setAttribute("aria-pressed", String(shown));
    }
    for (const panel of document.querySelectorAll(".panel")) {
      const hidden = of(Number(panel.dataset.group)).every((run) => state.hidden.has(run));
      panel.classList.toggle("off", hidden);
    }
    document.querySelector(".legend .all").hidden = state.hidden.size === 0;
  }

  function toggle(runs) {
    const hide = runs.some((run) => !state.hidden.has(run));
    for (const run of runs) hide ? state.hidden.add(run) : state.hidden.delete(run);
    show();
  }

  function wire() {
    const of = (place) => state.runs.flatMap((run, i) => run.group === place ? [i] : []);
    for (const button of document.querySelectorAll(".legend .repeat"))
      button.addEventListener("click", () => toggle([Number(button.dataset.run)]));
    for (const button of document.querySelectorAll(".legend .group")) {
      const mine = of(Number(button.dataset.group));
      button.addEventListener("click", () => toggle(mine));
      button.addEventListener("dblclick", () => {
        state.hidden = new Set(state.runs.keys());
        for (const run of mine) state.hidden.delete(run);
        show();
      });
    }
    document.querySelector(".legend .all").addEventListener("click", () => {
      state.hidden.clear();
      show();
    });
    document.querySelector(".legend .origin")?.addEventListener("click", () => {
      state.hidden = new Set(state.runs.flatMap((run, i) => run.imported ? [i] : []));
      show();
    });
    document.getElementById("bands").addEventListener("change", (event) => {
      state.bands = event.target.checked;
      show();
    });
    // Where a link leads is shown below the legend, however many rows it has.
    const legend = document.querySelector(".legend");
    new ResizeObserver(() => document.documentElement.style.setProperty(
      "--legend", `${legend.offsetHeight}px`)).observe(legend);
    darkMedia.addEventListener("change", paint);
    for (const [event, printing] of [["beforeprint", true], ["afterprint", false]])
      window.addEventListener(event, () => {
        state.printing = printing;
        paint();
      });
  }

  // What a tooltip says, as elements: names are text, never markup. It stands in a shadow root,
  // out of the style sheet's reach, but custom properties are inherited there.
  function tooltip([title, ...lines]) {
    const box = document.createElement("div");
    box.className = "tip";
    box.style = "margin: -5px; padding: 6px 10px; background: var(--surface); color: var(--text);"
      + "font: 12.5px/1.5 system-ui, 'Liberation Sans', sans-serif; white-space: nowrap;"
      + "font-variant-numeric: tabular-nums;";
    const head = document.createElement("b");
    head.textContent = title;
    box.append(head);
    for (const line of lines) {
      const row = document.createElement("div");
      row.textContent = line;
      box.append(row);
    }
    return box;
  }

  // The step curve's level at x: corners come in pairs, a step's start and its end.
  function level(source, x) {
    const [xs, ys] = [source.get("x"), source.get("y")];
    let [low, high] = [0, xs.length - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      xs[middle] < x ? low = middle + 1 : high = middle;
    }
    return ys[low];
  }

  // All curves under the pointer at its percentile: where curves run together, one tooltip lies
  // over the others, so each tells of all.
  function curves(plot, run, { x, y }) {
    const reach = 10 * Math.log10(plot.y_range.end / plot.y_range.start) / plot.height;
    const near = [];
    for (const renderer of plot.renderers) {
      const { run: other, role } = renderer.tags[0];
      if (role !== "hit" || !renderer.visible) continue;
      const value = level(renderer.data_source, x);
      if (other === run || Math.abs(Math.log10(value / y)) < reach) near.push([value, other]);
    }
    near.sort(([a], [b]) => b - a);
    return [percent(x), ...near.map(([value, other]) => `${state.runs[other].label}: ${time(value)}`)];
  }

  function readings(kind, name, source, vars, cause) {
    const at = (column) => source.get(column)[vars.index];
    if (kind === "loss") return [name, at("told")];
    if (kind === "hops" || kind === "hop-packets") return [at("told"), name];
    if (kind === "causes")
      return [time(at("y")), at("told"), name, `at ${Number(at("x").toFixed(4))}\u00a0s`];
    if (kind === "shares") return [cause, at("told")];
    if (kind === "worst") return [time(at("y")), name, `at ${Number(at("x").toFixed(4))}\u00a0s`];
    if (kind === "losses") {
      const packets = at("y") === 1 ? "1 packet lost" : `${group(at("y"))} packets lost in a row`;
      return [packets, name, `at ${Number(at("x").toFixed(4))}\u00a0s`];
    }
    if (kind === "rates") return [`${group(1000 * at("y"))} packets`, name, `second ${Math.floor(vars.x) + 1}`];
    return [`${count(at("y")) || 0} packets`, name, `about ${time(vars.x)}`];
  }

  function hovers() {
    const tagged = new Map(marks().map(({ renderer, ...tag }) => [renderer.data_source.id, tag]));
    const places = { before: " (before)", line: " (after)" };
    for (const plot of state.plots)
      for (const tool of plot.toolbar.tools) {
        if (tool.type !== "HoverTool") continue;
        const kind = tool.tags[0];
        const sided = plot.renderers.some((r) => r.tags[0]?.role === "before");
        const part = parts.find((one) => one.kinds.includes(kind));
        tool.tooltips = (source, vars) => {
          const { run, role, cause } = tagged.get(source.id);
          if (kind === "hdr") return tooltip(curves(plot, run, vars));
          const name = state.runs[run].label + (sided ? places[role] ?? "" : "");
          return tooltip((part?.reading ?? readings)(kind, name, source, vars, cause));
        };
      }
  }

  // The HDR diagram's height, and as many labels of percentiles as its width has room for.
  function fit() {
    const figure = document.querySelector(".figure[data-kind=hdr]");
    if (figure === null) return;
    const [plot, axis] = [state.plots[0], state.plots[0].below[0]];
    plot.height = matchMedia("(max-width: 640px)").matches ? 420 : 520;
    const width = figure.clientWidth - 110;
    state.ticks ??= axis.ticker.ticks;
    const decade = width / Math.log10(state.ticks.at(-1) * 3);
    axis.major_label_orientation = decade < 75 ? 0.7 : "horizontal";
    axis.ticker.ticks = state.ticks.filter((tick) => decade > 120 || tick !== 4);
    // A finger that drags scrolls the page; it does not draw a box.
    if (matchMedia("(pointer: coarse)").matches)
      for (const plot of state.plots) plot.toolbar.active_drag = null;
  }

  async function start() {
    const library = document.createElement("script");
    library.textContent = await unpack("library");
    document.head.append(library);
    const payload = JSON.parse(await unpack("payload"));
    const { document: json, roots, runs } = payload;
    Object.assign(state, { runs });
    Bokeh.set_log_level("warn");
    await Bokeh.embed.embed_items({ report: json },
      [{ docid: "report", roots, root_ids: Object.keys(roots) }]);
    state.plots = Bokeh.documents.at(-1).roots();
    for (const plot of state.plots)
      plot.js_reset = document.getElementById(roots[plot.id])
        .addEventListener("dblclick", () => plot.reset.emit());
    if (payload.timelines) for (const part of parts) part.start(payload);
    hovers();
    fit();
    paint();
    wire();
    show();
    window.addEventListener("resize", fit);
  }

  // The page has not loaded before its figures are drawn: a document is open inside of it meanwhile.
  function loading() {
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    frame.contentDocument.open();
    return () => { frame.contentDocument.close(); frame.remove(); };
  }

  const loaded = loading();
  const ready = start().catch((error) => {
    const place = document.getElementById("trouble");
    place.textContent = `The figures cannot be drawn in this browser: ${error.message}`;
    place.hidden = false;
    throw error;
  }).finally(loaded);
  return { time, rate, count, percent, state, parts, ready };
})();
