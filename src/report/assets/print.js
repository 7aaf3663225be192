// For printing, charts are drawn again as SVG: sharp, as wide as the sheet and in light colours. A canvas that is
// redrawn while the browser prints would come too late.
"use strict";

function shape(name, attributes, parts = []) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
  element.append(...parts);
  return element;
}

// Round numbers from low to high, at most about `count`.
function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const unit = [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999) * power;
  const found = [];
  for (let multiple = Math.ceil(low / unit - 1e-9); multiple <= high / unit + 1e-9; multiple += 1) {
    found.push(Number((multiple * unit).toPrecision(12)));
  }
  return found;
}

class Drawing {
  constructor(chart) {
    const small = chart.plot.closest(".pair") !== null;
    this.chart = chart;
    this.width = small ? 330 : 690;
    this.height = chart.plot.closest(".pair, .low") ? 170 : 250;
    this.box = { left: 34, top: 8, right: this.width - (chart.levels.length ? 36 : 17), bottom: this.height - 20 };
    [this.firstStep, this.lastStep] = chart.graph.xAxisRange();
    [this.low, this.high] = chart.graph.yAxisRange();
  }

  x(step) {
    const share = (step - this.firstStep) / (this.lastStep - this.firstStep);
    return this.box.left + share * (this.box.right - this.box.left);
  }

  y(value) {
    return this.box.bottom - ((value - this.low) / (this.high - this.low)) * (this.box.bottom - this.box.top);
  }

  place(step, value) {
    return this.x(step).toFixed(2) + " " + this.y(value).toFixed(2);
  }

  axes() {
    const { left, right, bottom } = this.box;
    const across = ticks(this.firstStep, this.lastStep, this.width / 90).map((step) =>
      shape("text", { x: this.x(step), y: bottom + 15, "text-anchor": "middle" }, [PLAIN.format(step)]));
    const up = ticks(this.low, this.high, this.height / 38).flatMap((value) => [
      shape("line", { x1: left, x2: right, y1: this.y(value), y2: this.y(value), stroke: "var(--grid)" }),
      shape("text", { x: left - 5, y: this.y(value) + 4, "text-anchor": "end" }, [PLAIN.format(value)]),
    ]);
    const corner = `M${left} ${this.box.top}V${bottom}H${right}`;
    return [...up, ...across, shape("path", { d: corner, stroke: "var(--axis)", fill: "none" })];
  }

  // Pieces of a line between values that are not numbers.
  pieces(line) {
    const pieces = [[]];
    for (const point of line.points) {
      if (Number.isFinite(point.value)) pieces[pieces.length - 1].push(point);
      else pieces.push([]);
    }
    return pieces.filter((piece) => piece.length);
  }

  line(line) {
    const colour = `var(--${line.colour})`;
    const edge = (piece, sign) => piece.map((point) => this.place(point.step, point.value + sign * point.spread));
    return this.pieces(line).flatMap((piece) => {
      const band = [...edge(piece, 1), ...edge([...piece].reverse(), -1)].join("L");
      const stroke = shape("path", {
        d: "M" + edge(piece, 0).join("L"), stroke: colour, fill: "none", "stroke-width": line.repeated ? 0.9 : 1.6,
        "stroke-dasharray": line.dash ? line.dash.join(" ") : "none", "stroke-linejoin": "round",
      });
      return line.repeated ? [stroke] : [shape("path", { d: `M${band}Z`, fill: colour, opacity: 0.16 }), stroke];
    });
  }

  levels() {
    let free = -Infinity;
    const shown = this.chart.visibleLevels(this.chart.graph).sort((a, b) => b.line.paper - a.line.paper);
    return shown.flatMap(({ line, label }, place) => {
      const y = this.y(line.paper);
      const whose = shape("text", { x: this.box.right + 5, y: y - 8 }, [place === 0 ? "paper" : ""]);
      free = Math.max(free + 12, y + 4);
      const colour = `var(--${line.colour})`;
      return [
        whose,
        shape("path", {
          d: `M${this.box.left} ${y}H${this.box.right}`, stroke: colour, "stroke-width": 0.8, "stroke-dasharray": "3 3",
        }),
        shape("text", { x: this.box.right + 5, y: free, style: "fill:" + colour }, [label.textContent]),
      ];
    });
  }

  element() {
    const { left, top, right, bottom } = this.box;
    const inside = { x: left, y: top, width: right - left, height: bottom - top };
    const frame = shape("svg", { ...inside, viewBox: Object.values(inside).join(" ") },
      this.chart.lines.filter((line) => line.input.checked).flatMap((line) => this.line(line)));
    const whole = { class: "drawing", viewBox: `0 0 ${this.width} ${this.height}` };
    return shape("svg", whole, [...this.axes(), ...this.levels(), frame]);
  }
}

let unfolded = [];
function beforePrint() {
  afterPrint();
  unfolded = [...document.querySelectorAll("details:not([open])")];
  unfolded.forEach((details) => { details.open = true; });
  for (const chart of charts) {
    if (chart.rows.length) chart.plot.after(new Drawing(chart).element());
  }
}

function afterPrint() {
  unfolded.forEach((details) => { details.open = false; });
  unfolded = [];
  document.querySelectorAll(".drawing").forEach((drawing) => drawing.remove());
}

window.addEventListener("beforeprint", beforePrint);
window.addEventListener("afterprint", afterPrint);
