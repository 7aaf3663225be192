// Interactive charts in the colours of the page.
"use strict";

const PLAIN = new Intl.NumberFormat("en-US");
const charts = [];

function variable(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

class Chart {
  constructor(box) {
    this.kind = box.dataset.kind;
    this.plot = box.querySelector(".plot");
    this.button = box.querySelector(".reset");
    this.legend = box.querySelector(".key legend");
    this.lines = [...box.querySelectorAll(".key input")].map((input) => readLine(input, this.kind));
    this.rows = rowsOf(this.lines);
    this.first = this.rows.findIndex((row) => row.some((cell) => Array.isArray(cell)));
    this.home = homeRange(this.kind, this.lines);
    this.levels = this.lines.filter((line) => line.paper !== null).map((line) => this.addLevel(line));
    this.graph = new Dygraph(this.plot, this.rows, this.options());
    this.whose = this.addLabel("whose", "paper");
    this.plot.append(this.whose, ...this.levels.map((level) => level.label));
    this.button.addEventListener("click", () => this.reset());
    this.plot.addEventListener("keydown", (event) => this.onKey(event));
    this.plot.addEventListener("blur", () => this.leave());
    this.lines.forEach((line) => line.input.addEventListener("change", () => this.refresh()));
    this.showLast();
    this.onDraw();
  }

  names() {
    return this.lines.map((line, place) => "line" + place);
  }

  options() {
    return {
      labels: ["step"].concat(this.names()),
      customBars: true,
      fillAlpha: 0.16,
      connectSeparatedPoints: true,
      legend: "never",
      valueRange: this.home,
      rightGap: this.levels.length ? 40 : 12,
      xRangePad: 2,
      highlightCircleSize: 3.5,
      pixelRatio: Math.max(2, window.devicePixelRatio || 1),
      axes: {
        x: { pixelsPerLabel: 64, axisLabelFormatter: (value) => PLAIN.format(value), drawGrid: false },
        y: { pixelsPerLabel: 34, axisLabelWidth: 34 },
      },
      interactionModel: this.interaction(),
      highlightCallback: (event, step) => this.showAt(step),
      unhighlightCallback: () => this.showLast(),
      underlayCallback: (context, area, graph) => this.drawLevels(context, area, graph),
      drawCallback: () => this.onDraw(),
      ...this.theme(),
    };
  }

  theme() {
    const series = {};
    this.lines.forEach((line, place) => {
      series["line" + place] = {
        color: variable(line.colour),
        strokePattern: line.dash,
        strokeWidth: line.repeated ? 1.2 : 2,
        drawPoints: line.points.length === 1,
        pointSize: 3,
      };
    });
    return { series, axisLineColor: variable("axis"), gridLineColor: variable("grid"), gridLineWidth: 1 };
  }

  // One finger shows values and still scrolls the page; two fingers zoom.
  interaction() {
    const usual = Dygraph.defaultInteractionModel;
    // Newer dygraphs listens passively and then prevents the default all the same, which browsers log as an
    // error. The style sheet already disables the browser's pinch zoom (touch-action).
    const touchesOf = (event) => ({ touches: event.touches, preventDefault() {} });
    return {
      ...usual,
      dblclick: () => this.reset(),
      touchstart: (event, graph, context) => {
        if (event.touches.length > 1) usual.touchstart(touchesOf(event), graph, context);
        else this.readTouch(event);
      },
      touchmove: (event, graph, context) => {
        if (event.touches.length > 1 && context.initialTouches) usual.touchmove(touchesOf(event), graph, context);
        else if (event.touches.length === 1) this.readTouch(event);
      },
      touchend: (event, graph, context) => {
        if (event.touches.length === 0) context.initialTouches = null;
      },
    };
  }

  readTouch(event) {
    const step = this.graph.toDataXCoord(event.touches[0].clientX - this.plot.getBoundingClientRect().left);
    this.select(this.nearestRow(step));
  }

  nearestRow(step) {
    let best = this.first;
    for (let place = best + 1; place < this.rows.length; place += 1) {
      if (Math.abs(this.rows[place][0] - step) < Math.abs(this.rows[best][0] - step)) best = place;
    }
    return best;
  }

  select(row) {
    if (!this.rows.length) return;
    this.graph.setSelection(row);
    this.showAt(this.rows[row][0]);
  }

  leave() {
    this.graph.clearSelection();
    this.showLast();
  }

  onKey(event) {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") this.reset();
    if (move === undefined || !this.rows.length) return;
    event.preventDefault();
    const now = this.graph.getSelection();
    const start = now < 0 ? (move > 0 ? this.first - 1 : this.rows.length) : now;
    this.select(Math.min(Math.max(start + move, this.first), this.rows.length - 1));
  }

  reset() {
    this.graph.updateOptions({ dateWindow: null, valueRange: this.home });
    this.showLast();
  }

  isZoomed() {
    const [low, high] = this.graph.yAxisRange();
    return this.graph.isZoomed("x") || low !== this.home[0] || high !== this.home[1];
  }

  // Updates colours and visible lines; keeps the zoom.
  refresh() {
    const visibility = this.lines.map((line) => line.input.checked);
    this.graph.updateOptions({ visibility, valueRange: this.graph.yAxisRange(), ...this.theme() });
  }

  format(point) {
    if (!point || !Number.isFinite(point.value)) return "–";
    const digits = KINDS[this.kind].digits;
    const spread = point.spread > 0 ? " ± " + point.spread.toFixed(digits) : "";
    return point.value.toFixed(digits) + spread;
  }

  showAt(step) {
    this.legend.textContent = "at step " + PLAIN.format(step);
    for (const line of this.lines) {
      line.output.textContent = this.format(line.points.find((point) => point.step === step));
    }
  }

  showLast() {
    this.legend.textContent = "last values";
    for (const line of this.lines) line.output.textContent = this.format(line.points[line.points.length - 1]);
  }

  addLabel(style, text) {
    const label = document.createElement("span");
    label.className = style;
    label.textContent = text;
    label.hidden = true;
    return label;
  }

  addLevel(line) {
    return { line, label: this.addLabel("level", line.paper.toFixed(1)) };
  }

  visibleLevels(graph) {
    const [low, high] = graph.yAxisRange();
    return this.levels.filter(({ line }) => line.input.checked && line.paper >= low && line.paper <= high);
  }

  drawLevels(context, area, graph) {
    context.save();
    context.lineWidth = 1;
    context.setLineDash([3, 3]);
    for (const { line } of this.visibleLevels(graph)) {
      const y = Math.round(graph.toDomYCoord(line.paper)) + 0.5;
      context.strokeStyle = variable(line.colour);
      context.beginPath();
      context.moveTo(area.x, y);
      context.lineTo(area.x + area.w, y);
      context.stroke();
    }
    context.restore();
  }

  onDraw() {
    if (!this.graph) return;  // dygraphs draws once before its constructor returns
    this.button.disabled = !this.isZoomed();
    this.placeLabels();
  }

  // Numbers of the paper at the right, moved apart where they would overlap.
  placeLabels() {
    const height = 15;
    const area = this.graph.getArea();
    const shown = this.visibleLevels(this.graph).sort((a, b) => b.line.paper - a.line.paper);
    this.levels.forEach(({ label }) => { label.hidden = true; });
    let free = -Infinity;
    const tops = shown.map(({ line }) => {
      free = Math.max(free, this.graph.toDomYCoord(line.paper) - height / 2);
      free += height;
      return free - height;
    });
    const excess = Math.max(0, free - (area.y + area.h));
    const put = (label, top) => {
      label.hidden = false;
      label.style.left = area.x + area.w + 5 + "px";
      label.style.top = top - excess + "px";
    };
    shown.forEach(({ line, label }, place) => {
      put(label, tops[place]);
      label.style.color = variable(line.colour);
    });
    this.whose.hidden = true;
    if (shown.length) put(this.whose, tops[0] - height);
  }
}

document.querySelectorAll(".chart").forEach((box) => charts.push(new Chart(box)));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach((chart) => chart.refresh()));
