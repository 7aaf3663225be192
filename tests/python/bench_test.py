"""python -m renorm.bench: the figures it writes, its checks of the competitors, its errors. Times are not judged."""
import contextlib
import io
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import torch

from renorm import _bench_layers, _bench_report, _bench_step, _bench_timing, _library, bench

DOCS = Path(__file__).resolve().parents[2] / "docs"


def called(*arguments):
    """Exit code, standard output and standard error of main()."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = bench.main(list(arguments))
        except SystemExit as end:
            code = end.code
    return code, out.getvalue(), err.getvalue()


class QuickRun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "bench.json"
            cls.arguments = ["--quick", "--only", "tiny,layers", "--json", str(file)]
            command = [sys.executable, "-m", "renorm.bench", *cls.arguments]
            cls.run_ = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            cls.record = json.loads(file.read_text()) if file.exists() else None
            cls.left = sorted(path.name for path in Path(folder).iterdir())

    def setUp(self):
        self.assertEqual(self.run_.returncode, 0, self.run_.stderr)

    def test_describes_machine_and_setting(self):
        record = self.record
        self.assertEqual(record["schema"], 1)
        self.assertEqual(record["command"], ["python3", "-m", "renorm.bench", *self.arguments])
        self.assertEqual(record["threads"], 1)
        self.assertEqual(record["clock"], "process_time")
        self.assertEqual(record["torch"]["version"], torch.__version__)
        self.assertEqual(record["library"] == "compiled library", _library.has_kernels)
        self.assertTrue(record["machine"]["cpu"])
        self.assertIsInstance(record["machine"]["simd_flags"], list)
        self.assertIsInstance(record["malloc"]["environment"], dict)
        self.assertIn("best sample", record["statistic"])

    def test_writes_only_the_file(self):
        self.assertEqual(self.left, ["bench.json"])

    def check_figure(self, figure):
        self.assertGreater(figure["best_us"], 0)
        self.assertGreaterEqual(figure["median_us"], figure["best_us"])
        self.assertGreaterEqual(figure["spread_us"], 0)
        self.assertGreaterEqual(figure["samples"], 3)
        self.assertGreaterEqual(figure["calls_per_sample"], 1)

    def test_tiny_compares_with_batch_norm(self):
        cases = self.record["results"]["tiny"]["cases"]
        self.assertEqual([case["aim"] for case in cases], [1.3, None, 1.0, 1.0])
        for case in cases:
            self.assertEqual(set(case["figures"]), {"ours", "batch_norm"})
            for figure in case["figures"].values():
                self.check_figure(figure)
            best = [case["figures"][name]["best_us"] for name in ("ours", "batch_norm")]
            self.assertAlmostEqual(case["ratio_best"], best[0] / best[1])

    def test_layers_cover_both_layouts_and_passes(self):
        layers = self.record["results"]["layers"]
        covered = {(case["layout"], case["pass"]) for case in layers["cases"]}
        layouts, passes = ("nchw", "channels_last"), ("forward", "both")
        self.assertEqual(covered, {(layout, which) for layout in layouts for which in passes})
        for case in layers["cases"]:
            self.assertLessEqual({"ours", "batch_norm_relu", "tensor_ops"}, set(case["figures"]))
            for figure in case["figures"].values():
                self.check_figure(figure)
        for statistic in ("best", "median"):
            for passes in layers[f"geometric_mean_{statistic}"].values():
                for means in passes.values():
                    self.assertTrue(all(mean > 0 for mean in means.values()))

    def test_aims_of_a_quick_run_are_not_judged(self):
        self.assertFalse(self.record["aims_apply"])
        self.assertEqual(len(self.record["aims"]), 3 + 8)
        for aim in self.record["aims"]:
            reached = aim["value"] <= aim["aim"] if aim["direction"] == "at most" else aim["value"] >= aim["aim"]
            self.assertEqual(aim["reached"], reached)
        self.assertIn("Aims, not judged", self.run_.stdout)
        self.assertNotIn("reached", self.run_.stdout)

    def test_text_shows_every_section_and_no_progress(self):
        for title in ("One call on a tensor of 4x16x4x4", "One layer in training", "malloc:", "times:"):
            self.assertIn(title, self.run_.stdout)
        self.assertNotIn("\x1b", self.run_.stdout + self.run_.stderr)


class Usage(unittest.TestCase):
    def check_rejected(self, words, *arguments):
        code, out, err = called(*arguments)
        self.assertEqual((code, out), (2, ""), arguments)
        self.assertEqual(err.count("\n"), 1, err)
        self.assertTrue(err.startswith("python -m renorm.bench: "), err)
        self.assertIn(words, err)

    def test_bad_flags_are_one_sentence(self):
        self.check_rejected("--fast", "--fast")
        self.check_rejected("--qui", "--qui")
        self.check_rejected("extra", "extra")
        self.check_rejected("did you mean 'layers'?", "--only", "tiny,layer")
        self.check_rejected("unknown section ''", "--only", "")
        for threads in ("0", "-1", "two", "1e2", "99999", ""):
            self.check_rejected("--threads: must be from 1 to 1024", f"--threads={threads}")

    def test_unwritable_file_is_found_before_the_run(self):
        with tempfile.TemporaryDirectory() as folder:
            self.check_rejected("must be a file", "--json", folder)
            self.check_rejected("does not exist", "--json", str(Path(folder) / "missing" / "bench.json"))
        self.check_rejected("must be a file", "--json", "")

    def test_replaces_only_its_own_output_unless_forced(self):
        earlier = (DOCS / "results" / "bench-python.json").read_bytes()
        stopped = mock.patch.object(bench, "run", side_effect=_bench_layers.Disagreement)  # after the checks
        with tempfile.TemporaryDirectory() as folder, stopped:
            file = Path(folder) / "own"
            for content in (b"precious", b"[1]", b'{"machine": {}, "results": {}}', b"\xff", b"[" * 100000):
                file.write_bytes(content)
                self.check_rejected("exists and is not an earlier output of this command", "--json", str(file))
                self.assertEqual(called("--json", str(file), "--force")[0], 1)
            for content in (b"", earlier):
                file.write_bytes(content)
                self.assertEqual(called("--json", str(file))[0], 1)

    def test_help_lists_flags_and_sections(self):
        code, out, _ = called("--help")
        self.assertEqual(code, 0)
        for word in ("--json", "--force", "--quick", "--threads", "--only", "--fresh-memory", "exit codes", *bench.SECTIONS):
            self.assertIn(word, out)


class Checks(unittest.TestCase):
    def test_competitors_that_disagree_end_the_run(self):
        with mock.patch.object(_bench_layers, "R_MAX", 1.01):
            code, out, err = called("--quick", "--only", "layers", "--fresh-memory")
        self.assertEqual((code, out), (1, ""))
        self.assertEqual(err.count("\n"), 1, err)
        self.assertIn("competitors disagree", err)

    def test_nan_is_a_disagreement(self):
        good = torch.ones(8)
        bad = good.clone()
        bad[3] = float("nan")
        _bench_layers.check_equal("here", "output", good, good)
        with self.assertRaisesRegex(_bench_layers.Disagreement, "here: output: 1 of 8 values"):
            _bench_layers.check_equal("here", "output", bad, good)

    def test_section_that_cannot_run_is_skipped_with_its_reason(self):
        with mock.patch.object(bench.importlib.util, "find_spec", return_value=None):
            code, out, _ = called("--quick", "--only", "step", "--fresh-memory")
        self.assertEqual(code, 0)
        self.assertIn("step: skipped, torchvision is not installed", out)


@unittest.skipUnless(hasattr(torch, "compile"), "no torch.compile")
class Compiled(unittest.TestCase):
    def test_shows_every_competitor_eager_and_compiled(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "bench.json"
            code, out, err = called("--quick", "--only", "compile", "--fresh-memory", "--json", str(file))
            self.assertEqual(code, 0, err)
            record = json.loads(file.read_text())
        if "compile" in record["skipped"]:
            self.skipTest(record["skipped"]["compile"])
        figures = record["results"]["compile"]["cases"][0]["figures"]
        self.assertEqual(set(figures), {"ours", "batch_norm_relu", "ours_compiled", "batch_norm_relu_compiled",
                                        "tensor_ops_compiled"})
        self.assertIn(record["results"]["compile"]["inductor"], out)


class Timing(unittest.TestCase):
    def test_every_round_runs_every_competitor_once(self):
        calls = []
        competitors = {name: (lambda name=name: calls.append(name)) for name in "abc"}
        figures = _bench_timing.measure(competitors, _bench_timing.Effort(0.0, 5, 5, 0.0), 1)
        self.assertEqual(calls[:3], ["a"] * 3)  # finds the calls per sample
        rounds = [calls[i:i + 3] for i in range(3, len(calls), 3)]
        self.assertEqual(len(rounds), 5)
        self.assertTrue(all(sorted(one) == ["a", "b", "c"] for one in rounds))
        self.assertGreater(len({tuple(one) for one in rounds}), 1)
        self.assertTrue(all(len(figure.samples) == 5 for figure in figures.values()))

    def test_ratio_of_a_step_is_taken_within_rounds(self):
        def figure(*samples):
            return _bench_timing.Figure(min(samples), samples[1], 0.0, list(samples), 1)

        self.assertEqual(_bench_step.ratios_by_round(figure(2.0, 6.0, 4.0), figure(1.0, 2.0, 4.0)), [2.0, 3.0, 1.0])


class Documentation(unittest.TestCase):
    """The tables of docs/python.md have the figures of the records."""

    @classmethod
    def setUpClass(cls):
        lines = (DOCS / "python.md").read_text().splitlines()
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
        cls.rows = {row[0]: row[1:] for row in rows}
        files = {"1.13": "bench-python.json", "2.6": "bench-python-2.6.json", "2.14": "bench-python-2.14.json"}
        cls.results = {version: json.loads((DOCS / "results" / name).read_text())["results"] for version, name in files.items()}

    def test_layers(self):
        for version, results in self.results.items():
            means = results["layers"]["geometric_mean_best"]
            for which, row in (("forward", f"forward, PyTorch {version}"), ("both", f"forward + backward, {version}")):
                figures = [means[layout][which][peer] for peer in ("batch_norm_relu", "tensor_ops")
                           for layout in ("nchw", "channels_last")]
                self.assertEqual(self.rows[row], [f"{figure:.1f}" for figure in figures], row)

    def test_calls_and_steps(self):
        for number, results in enumerate(self.results.values()):
            tiny = {case["name"]: case["ratio_best"] for case in results["tiny"]["cases"]}
            steps = {case["layout"]: 1 / case["ratio_median"] for case in results.get("step", {}).get("cases", ())}
            for row, figure in {
                "a training call on 4x16x4x4": tiny["training"],
                "an evaluation call on it without gradients": tiny["evaluation"],
                "an evaluation call on it with gradients recorded": tiny["evaluation, gradients recorded"],
                "a training step of torchvision's resnet50, batch 16, 160 pixels, NCHW": steps.get("nchw"),
                "the same, channels-last": steps.get("channels_last"),
            }.items():
                self.assertEqual(self.rows[row][number], "" if figure is None else f"{figure:.2f}", row)

    def test_the_time_of_a_run_is_that_of_the_help(self):
        self.assertIn("about ten minutes", called("--help")[1])
        self.assertIn("python3 -m renorm.bench --json FILE       # ten minutes;", (DOCS / "python.md").read_text())


class Aims(unittest.TestCase):
    def test_bounds_are_reached_from_their_side(self):
        self.assertTrue(_bench_report.Aim("", 1.3, True, 1.3).reached())
        self.assertFalse(_bench_report.Aim("", 1.3, True, 1.31).reached())
        self.assertTrue(_bench_report.Aim("", 4.0, False, 4.0).reached())
        self.assertFalse(_bench_report.Aim("", 4.0, False, 3.9).reached())

    def test_geometric_mean(self):
        self.assertAlmostEqual(_bench_report.geometric_mean([1.0, 4.0, 16.0]), 4.0)


if __name__ == "__main__":
    unittest.main()
