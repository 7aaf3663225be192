"""Runs every Python example in its shortened form."""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "python"


class Examples(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_example(self, name, *arguments):
        """The finished process of `name --quick`, run in an empty folder."""
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(folder) for folder in sys.path if folder)
        if environment.get("RENORM_LIBRARY", "none") != "none":
            environment["RENORM_LIBRARY"] = os.path.abspath(environment["RENORM_LIBRARY"])
        command = [sys.executable, str(EXAMPLES / name), "--quick", "--threads", "1", *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            universal_newlines=True
        )

    def table_of(self, name, *arguments):
        """{first cell: numbers} of the table that the example prints: rows with a bar, below the heading."""
        done = self.run_example(name, *arguments)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = [line.split("|") for line in done.stdout.splitlines() if "|" in line]
        headings = [row for row in rows if not any(letter.isdigit() for letter in "".join(row[1:]))]
        self.assertGreaterEqual(len(headings), 1, done.stdout)
        return {
            row[0].strip(): [cell for column in row[1:] for cell in column.split()] for row in rows if row not in headings
        }

    def assert_percentages(self, cells):
        for cell in cells:
            self.assertTrue(0.0 <= float(cell) <= 100.0, cell)

    def test_finetune_compares_three_norms(self):
        table = self.table_of("finetune.py")
        self.assertEqual(list(table), ["BatchNorm", "BatchNorm, frozen", "Batch Renorm"])
        for cells in table.values():
            self.assertEqual(len(cells), 2)
            self.assert_percentages(cells)

    def test_metric_learning_reports_recall(self):
        table = self.table_of("metric_learning.py")
        self.assertEqual(list(table), ["input", "no norm", "BatchNorm", "Batch Renorm"])
        for cells in table.values():
            self.assertEqual(len(cells), 4)
            self.assert_percentages(cells)

    def test_accumulation_is_exact_only_when_deferred(self):
        table = self.table_of("gradient_accumulation.py", "--steps", "8")
        self.assertEqual(list(table), ["whole batch", "deferred", "immediate"])
        self.assertEqual([cells[0] for cells in table.values()], ["8", "8", "64"])
        for cells in table.values():
            self.assertEqual(len(cells), 5)
            self.assert_percentages(cells[-1:])
        # Double precision: differences of the weights, of the averages and between orders.
        for exact, wrong in zip(table["deferred"][1:4], table["immediate"][1:4]):
            self.assertLess(float(exact), 1e-10)
            self.assertGreater(float(wrong), 1e-6)

    def test_crossq_draws_the_returns_of_its_table(self):
        table = self.table_of("crossq.py", "--seeds", "2", "--png", "curves.png")
        self.assertEqual(list(table), [str(8 * row) for row in range(17)])
        for cells in table.values():
            # Three norms: mean (minimum .. maximum)
            self.assertEqual(len(cells), 12)
            for mean, low, high in zip(cells[0::4], cells[1::4], cells[3::4]):
                low, high = float(low.strip("()")), float(high.strip("()"))
                self.assertTrue(low <= float(mean) <= high <= 0.0, cells)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["curves.png"])
        image = (self.folder / "curves.png").read_bytes()
        self.assertEqual(image[:16], b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR")

    def test_an_unknown_option_is_an_error(self):
        for name in ("finetune.py", "metric_learning.py", "gradient_accumulation.py", "crossq.py"):
            done = self.run_example(name, "--stepz", "3")
            self.assertEqual(done.returncode, 2, name)
            self.assertIn("--stepz", done.stderr)


if __name__ == "__main__":
    unittest.main()
