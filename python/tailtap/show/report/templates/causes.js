// The figures of causes: their colours, and what lies around a late packet.
(() => {
  const { state, time, parts } = window.tailtap;
  const tall = 3;  // the height of the late packets' lane, in lanes
  let dark = false;
  const shade = (cause) => {
    const colours = state.causes[cause] ?? state.causes.unexplained;
    return dark ? colours.dark : colours.light;
  };
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const timelines = [];

  // A figure of lanes, filled with the surroundings of one packet at a time.
  class Timeline {
    constructor(plot, run, data) {
      Object.assign(this, { plot, data, run, at: 0 });
      const of = (role) => plot.renderers.find((one) => one.tags[0].role === role).data_source;
      this.slices = of("slices");
      this.labels = of("labels");
      this.stay = plot.center.find((part) => part.tags?.includes("stay"));
      this.panel = document.getElementById(`figure-${plot.id}`).closest(".panel");
      this.select = this.panel.querySelector("select");
      this.select.addEventListener("change", () => this.show(Number(this.select.value)));
      for (const button of this.panel.querySelectorAll(".step"))
        button.addEventListener("click", () => {
          const count = data.packets.length;
          this.show((this.at + Number(button.dataset.step) + count) % count);
        });
      plot.x_range.change.connect(() => this.write());
      this.show(0);
    }

    // The upper edge of a lane.
    top(lane) {
      return lane === 0 ? 0 : -tall - (lane - 1);
    }

    show(at) {
      this.at = at;
      this.select.value = String(at);
      const packet = this.data.packets[at];
      const window_ = this.data.windows[packet.window];
      this.panel.querySelector(".told").textContent = packet.words;
      this.panel.querySelector(".omitted").textContent = window_.omitted
        ? `${window_.omitted} shorter ones are left out.` : "";
      this.panel.querySelector(".clock").textContent = packet.clock;
      this.boxes = [...this.packets(window_, packet), ...this.stalls(window_, packet),
        ...this.cores(window_, packet)];
      const [from, until] = packet.view.map((ns) => ns - packet.start);
      Object.assign(this.plot.x_range, { reset_start: from, reset_end: until });
      this.plot.x_range.setv({ start: from, end: until });
      this.stay.setv({ left: 0, right: packet.end - packet.start });
      this.fill();
    }

    *packets(window_, packet) {
      const { start, end, cause, row } = window_.late;
      const height = (tall - 0.2) / Math.max(6, ...row.map((one) => one + 1));
      const isOwn = (i) => start[i] === packet.start && end[i] === packet.end;
      const order = [...start.keys()].sort((a, b) => isOwn(a) - isOwn(b));  // it lies on the others
      for (const i of order) {
        const own = isOwn(i);
        const name = this.data.texts[cause[i]];
        const top = -0.1 - row[i] * height;
        yield { left: start[i] - packet.start, right: end[i] - packet.start, top,
          bottom: top - (own ? Math.max(height, 0.42) : height) * (height > 0.05 ? 0.82 : 1),
          cause: name, alpha: own ? 1 : 0.45,
          name: own ? "this packet" : "", told: `late packet: ${name}`, ns: end[i] - start[i] };
      }
    }

    *stalls(window_, packet) {
      const { start, end, cause, name, ns } = window_.stalls;
      for (let i = 0; i < start.length; i++) {
        const top = this.top(1) - 0.2;
        const told = this.data.texts[name[i]];
        yield { left: start[i] - packet.start, right: end[i] - packet.start, top, bottom: top - 0.6,
          cause: this.data.texts[cause[i]], alpha: 0.85, name: told, told, ns: ns[i] };
      }
    }

    *cores(window_, packet) {
      const { start, end, lane, depth, name, cause, ns, short, split } = window_.slices;
      for (let i = 0; i < start.length; i++) {
        const upper = this.top(lane[i]);
        const kind = this.data.texts[cause[i]];
        const told = this.data.texts[name[i]];
        const top = upper - 0.1 - (depth[i] ? 0.4 : 0);
        yield { left: start[i] - packet.start, right: end[i] - packet.start, top,
          bottom: upper - 0.9, cause: kind, alpha: short[i] ? 0.35 : 1, text: split[i] ? upper - 0.3 : null,
          name: kind === "idle" ? "" : told, told: short[i] ? `${told}, added up` : told, ns: ns[i] };
      }
    }

    fill() {
      const column = (name) => this.boxes.map((box) => box[name]);
      this.slices.data = {
        left: column("left"), right: column("right"), top: column("top"), bottom: column("bottom"),
        colour: this.boxes.map((box) => shade(box.cause)), alpha: column("alpha"),
        name: column("name"),
        told: this.boxes.map((box) => [box.told, box.cause.split(":")[0], time(box.ns), box.left]),
      };
      const accent = css("--accent");
      this.stay.setv({ fill_color: accent, line_color: accent });
      this.write();
    }

    // Names of what is wide enough for them.
    write() {
      const { start, end } = this.plot.x_range;
      const pixels = (this.plot.inner_width || this.plot.width || 800) / (end - start);
      const shown = { x: [], y: [], text: [], colour: [] };
      for (const box of this.boxes) {
        const left = Math.max(box.left, start);
        const room = (Math.min(box.right, end) - left) * pixels - 8;
        if (!box.name || room < 24 || box.top - box.bottom < 0.3) continue;
        const letters = Math.floor(room / 6);
        shown.x.push(left + 4 / pixels);
        shown.y.push(box.text ?? (box.top + box.bottom) / 2);
        shown.text.push(box.name.length > letters ? `${box.name.slice(0, letters - 1)}…` : box.name);
        shown.colour.push(readable(shade(box.cause), box.alpha));
      }
      this.labels.data = shown;
    }
  }

  // Black or white, whichever stands out.
  function readable(colour, alpha) {
    const [r, g, b] = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
    const light = (0.299 * r + 0.587 * g + 0.114 * b) * alpha + (dark ? 20 : 255) * (1 - alpha);
    return light > 140 ? "#14181b" : "#ffffff";
  }

  parts.push({
    kinds: ["timeline"],
    start(payload) {
      Object.assign(state, { causes: payload.causes });
      for (const plot of state.plots) {
        const renderer = plot.renderers.find((one) => one.tags[0]?.role === "slices");
        if (renderer === undefined) continue;
        const { run } = renderer.tags[0];
        timelines.push(new Timeline(plot, run, payload.timelines[run]));
      }
    },
    paint(isDark) {
      dark = isDark;
      for (const one of timelines) one.fill();
    },
    reading(kind, name, source, vars) {
      const told = source.get("told")[vars.index];
      const [what, why, length, from] = told;
      const side = from < 0 ? "before" : "after";
      return [what, ...(what.endsWith(why) ? [] : [why]), length,
        `begins ${time(Math.abs(from))} ${side} the packet came`];
    },
  });
  window.tailtap.timelines = timelines;
})();
