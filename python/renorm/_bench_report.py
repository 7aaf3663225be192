"""The aims, and results as text."""
import math
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence

LAYOUT_NAMES = {"nchw": "NCHW", "channels_last": "channels-last"}
PASS_NAMES = {"forward": "forward", "both": "forward + backward"}
COMPETITOR_NAMES = {
    "ours": "ours",
    "batch_norm": "BatchNorm2d",
    "batch_norm_relu": "BatchNorm2d + ReLU",
    "tensor_ops": "tensor operations",
    "ours_without_library": "ours without library",
    "batch_norm_relu_compiled": "BatchNorm2d + ReLU compiled",
    "tensor_ops_compiled": "tensor operations compiled",
    "ours_compiled": "ours compiled",
}


class Aim(NamedTuple):
    name: str
    bound: float
    at_most: bool  # otherwise at least
    value: Optional[float]

    def reached(self) -> Optional[bool]:
        if self.value is None:
            return None
        return self.value <= self.bound if self.at_most else self.value >= self.bound

    def to_json(self) -> Dict[str, Any]:
        return {
            "name": self.name,
            "aim": self.bound,
            "direction": "at most" if self.at_most else "at least",
            "value": self.value,
            "reached": self.reached(),
        }


def geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def geometric_means(cases: Sequence[Dict[str, Any]], statistic: str) -> Dict[str, Dict[str, Dict[str, float]]]:
    """[layout][pass][peer]: the mean over the shapes of the peer's time / ours."""
    means: Dict[str, Dict[str, Dict[str, float]]] = {}
    for layout in LAYOUT_NAMES:
        for which in PASS_NAMES:
            chosen = [case["figures"] for case in cases if (case["layout"], case["pass"]) == (layout, which)]
            if chosen:
                means.setdefault(layout, {})[which] = {
                    peer: geometric_mean(figures[peer][statistic] / figures["ours"][statistic] for figures in chosen)
                    for peer in chosen[0] if peer != "ours"
                }
    return means


_LAYER_AIMS = {
    ("nchw", "forward"): 4.0, ("nchw", "both"): 2.8, ("channels_last", "forward"): 1.7, ("channels_last", "both"): 1.5,
}
_TENSOR_OPS_AIM = 15.0


def aims(results: Dict[str, Any]) -> List[Aim]:
    """The aims of the sections that ran."""
    found = []
    for case in results.get("tiny", {}).get("cases", ()):
        if case["aim"] is not None:
            found.append(Aim(f"tiny, {case['name']}: ours / BatchNorm2d", case["aim"], True, case["ratio_best"]))
    for layout, passes in results.get("layers", {}).get("geometric_mean_best", {}).items():
        for which, peers in passes.items():
            where = f"{LAYOUT_NAMES[layout]} {PASS_NAMES[which]}"
            bound = _LAYER_AIMS[layout, which]
            found.append(Aim(f"{where}: BatchNorm2d + ReLU / ours", bound, False, peers["batch_norm_relu"]))
            found.append(Aim(f"{where}: tensor operations / ours", _TENSOR_OPS_AIM, False, peers["tensor_ops"]))
    for case in results.get("step", {}).get("cases", ()):
        where = f"{case['model']} step, {LAYOUT_NAMES[case['layout']]}"
        found.append(Aim(f"{where}: original / converted", 1.0, False, case["ratio_median"]))
    return found


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns of the widths they need; the first row is the header, text to the left and numbers to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    left = [not any(row[i][:1].isdigit() for row in rows[1:]) for i in range(len(rows[0]))]
    left[0] = True
    lines = []
    for row in rows:
        cells = [cell.ljust(width) if side else cell.rjust(width) for cell, width, side in zip(row, widths, left)]
        lines.append("  " + "  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"


def header(record: Dict[str, Any]) -> str:
    machine, library = record["machine"], record["library"]
    malloc = record["malloc"]
    environment = " ".join(f"{name}={value}" for name, value in malloc["environment"].items())
    capability = record["torch"]["cpu_capability"]
    return (
        f"renorm {record['renorm']} ({library}), PyTorch {record['torch']['version']}"
        f"{f' ({capability})' if capability else ''}, Python {machine['python']}\n"
        f"{machine['cpu']}, {machine['cpus']} CPUs, load {machine['load_average'][0]:.1f}, "
        f"threads: {record['threads']}\n"
        f"malloc: freed memory {malloc['freed_memory']}{f'; {environment}' if environment else ''}\n"
        f"times: {record['statistic']}\n" + "".join(f"note: {note}\n" for note in record["notes"])
    )


def tiny_table(section: Dict[str, Any]) -> str:
    rows = [["", "ours us", "BatchNorm2d us", "ours / BatchNorm2d", "of medians"]]
    for case in section["cases"]:
        ours, peer = (case["figures"][name]["best_us"] for name in ("ours", "batch_norm"))
        rows.append([
            case["name"], f"{ours:.2f}", f"{peer:.2f}", f"{case['ratio_best']:.2f}", f"{case['ratio_median']:.2f}"
        ])
    return f"One call on a tensor of {section['shape']}\n{table(rows)}"


def layers_table(title: str, section: Dict[str, Any]) -> str:
    cases = section["cases"]
    peers = [name for name in cases[0]["figures"] if name != "ours"]
    rows = [["", "pass", "shape", "ours ms"] + [COMPETITOR_NAMES[peer] for peer in peers]]
    for case in cases:
        figures = case["figures"]
        ours = figures["ours"]["best_us"]
        ratios = [f"{figures[peer]['best_us'] / ours:.2f}" for peer in peers]
        where = [LAYOUT_NAMES[case["layout"]], PASS_NAMES[case["pass"]], case["shape"]]
        rows.append(where + [f"{ours / 1e3:.3f}"] + ratios)
    for statistic in ("best", "median"):
        for layout, passes in section[f"geometric_mean_{statistic}"].items():
            for which, means in passes.items():
                rows.append(
                    [LAYOUT_NAMES[layout], PASS_NAMES[which], f"geometric mean, {statistic}", ""]
                    + [f"{means[peer]:.2f}" for peer in peers]
                )
    return f"{title}\n{table(rows)}"


def step_table(section: Dict[str, Any]) -> str:
    first = section["cases"][0]
    rows = [["", "original ms", "converted ms", "original / converted", "lowest", "highest"]]
    groups: List[str] = []
    for case in section["cases"]:
        times = [f"{case['figures'][name]['median_us'] / 1e3:.0f}" for name in ("original", "converted")]
        ratios = [f"{value:.3f}" for value in (case["ratio_median"], min(case["ratios"]), max(case["ratios"]))]
        rows.append([LAYOUT_NAMES[case["layout"]]] + times + ratios)
        groups += [name for name in case["profile_ms"]["original"] if name not in groups]
    profile = [["one step by the profiler, ms of wall time"] + groups]
    for case in section["cases"]:
        for name, times in case["profile_ms"].items():
            cells = [f"{times.get(one, 0.0):.0f}" for one in groups]
            profile.append([f"{LAYOUT_NAMES[case['layout']]}, {name}"] + cells)
    title = (
        f"A training step of {first['model']}, batch {first['batch']}, {first['pixels']} pixels: medians of "
        f"{len(first['ratios'])} rounds; {first['relus_fused']} ReLUs fused\n"
    )
    return title + table(rows) + table(profile)


def aims_table(record: Dict[str, Any]) -> str:
    if not record["aims"]:
        return ""
    rows = [["", "aim", "result", ""]]
    for aim in record["aims"]:
        bound = f"{'<=' if aim['direction'] == 'at most' else '>='} {aim['aim']:g}"
        verdict = "reached" if aim["reached"] else "not reached"
        rows.append([aim["name"], bound, f"{aim['value']:.2f}", verdict if record["aims_apply"] else ""])
    title = "Aims" if record["aims_apply"] else f"Aims, not judged: {record['aims_apply_not_because']}"
    return f"{title}\n{table(rows)}"


def text(record: Dict[str, Any]) -> str:
    results = record["results"]
    parts = [header(record)]
    if "tiny" in results:
        parts.append(tiny_table(results["tiny"]))
    if "layers" in results:
        parts.append(layers_table("One layer in training: our time, and the peer's time / ours", results["layers"]))
    if "compile" in results:
        title = f"With torch.compile (Inductor, {results['compile']['inductor']}): our time, and the peer's time / ours"
        parts.append(layers_table(title, results["compile"]))
        parts += [f"  {note}\n" for note in results["compile"]["notes"]]
    if "step" in results:
        parts.append(step_table(results["step"]))
    parts += [f"{name}: skipped, {reason}\n" for name, reason in record["skipped"].items()]
    parts.append(aims_table(record))
    return "\n".join(part for part in parts if part)
