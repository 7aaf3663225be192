// Turns the results in the page into rows for dygraphs. The attributes of its checkbox describe a line.
"use strict";

const results = JSON.parse(document.getElementById("results").textContent);

// By data-dash; page.cpp has the same patterns for the key.
const DASHES = [null, [7, 3], [2, 2.5], [10, 3, 2, 3], [14, 4]];

// digits of values, their factor, and the minimum of the upper end of the axis
const KINDS = {
  accuracy: { digits: 1, scale: 1, top: 5 },
  clipped: { digits: 2, scale: 100, top: 1 },
  limits: { digits: 2, scale: 1, top: 1 },
  loss: { digits: 3, scale: 1, top: 0.1 },
};

const number = (value) => (value === null ? NaN : value);

function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

// Standard deviation with n - 1; 0 for fewer than two.
function deviation(values) {
  if (values.length < 2) return 0;
  const centre = mean(values);
  return Math.sqrt(values.reduce((sum, value) => sum + (value - centre) ** 2, 0) / (values.length - 1));
}

// Points {step, value, spread} of test accuracy. A value that is not a number leaves a gap.
function curvePoints(arm) {
  return arm.curve.map((point) => ({
    step: point.step,
    value: number(point.mean),
    spread: deviation(point.values.map(number)) || 0,
  }));
}

// Of a field of training.
function trainingPoints(arm, field, scale) {
  return arm.training.map((point) => ({ step: point.step, value: number(point[field]) * scale, spread: 0 }));
}

function readLine(input, kind) {
  const arm = results.arms[Number(input.dataset.arm)];
  const field = input.dataset.field;
  return {
    input,
    output: input.parentNode.querySelector(".value"),
    colour: input.dataset.colour,
    repeated: input.dataset.colour === "reference",  // from another figure: thin, without a band
    dash: DASHES[Number(input.dataset.dash)],
    paper: input.dataset.paper === undefined ? null : Number(input.dataset.paper),
    points: field === "curve" ? curvePoints(arm) : trainingPoints(arm, field, KINDS[kind].scale),
  };
}

// Rows [step, [low, value, high], ...] over the steps of all lines; null where a line has no point. The first row
// is step 0, so that the axis begins there, if any line begins later.
function rowsOf(lines) {
  const rows = new Map();
  lines.forEach((line, place) => {
    for (const point of line.points) {
      if (!rows.has(point.step)) rows.set(point.step, [point.step].concat(lines.map(() => null)));
      const half = line.repeated ? 0 : point.spread;
      rows.get(point.step)[place + 1] = [point.value - half, point.value, point.value + half];
    }
  });
  if (rows.size && !rows.has(0)) rows.set(0, [0].concat(lines.map(() => null)));
  return [...rows.values()].sort((a, b) => a[0] - b[0]);
}

function finite(values) {
  return values.filter(Number.isFinite);
}

// The initial range of the vertical axis. Accuracy leaves out the steep beginning, as in the figures of the paper.
function homeRange(kind, lines) {
  const values = finite(lines.flatMap((line) => line.points.map((point) => point.value + point.spread)));
  const papers = lines.map((line) => line.paper).filter((paper) => paper !== null);
  const top = Math.max(KINDS[kind].top, ...values, ...papers);
  if (kind !== "accuracy") return [Math.min(0, ...values), top * 1.06];
  const last = finite(lines.map((line) => (line.points.length ? line.points[line.points.length - 1].value : NaN)));
  const lowest = Math.min(top, ...last, ...papers);
  const bottom = Math.max(0, Math.floor(Math.min(top - 40, lowest - 0.6 * (top - lowest) - 15) / 10) * 10);
  return [bottom, Math.min(Math.max(100.5, top), top + (top - bottom) * 0.06)];
}
