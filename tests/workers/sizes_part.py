"""Other numbers of processes evaluate and continue the same training."""
import signal

from processes import CURVE, WorkersTest, last_step, records, saved_step, wait_for


class SizesTest(WorkersTest):
    def test_evaluation_has_the_same_digits(self):
        """Of the same weights: a step with this learning rate is too small to change one."""
        self.train(1, "start", "--steps", "20", "--lr", "0.01")
        results = []
        for size in (1, 2, 4):
            self.train(size, f"of-{size}", "--steps", "1", "--lr", "1e-30", "--norm-momentum", "1e-30", "--init",
                       self.path("start/checkpoints/last/model.safetensors"))
            record = records(self.path(f"of-{size}"), "evaluation")[-1]
            results.append([record[name] for name in ("images", "accuracy", "loss", "raw_accuracy", "raw_loss")])
        self.assertEqual(results[0][0], 400)
        self.assertEqual(results[0], results[1])
        self.assertEqual(results[0], results[2])

    def test_another_size_continues(self):
        """A run that is continued with 4, 1 and 2 processes has the curve of a run of one."""
        # A checkpoint per step slows the steps down, so that a signal arrives in time.
        settings = [*CURVE, "--checkpoint-every", "1"]
        one = self.whole(1, *settings)
        out = self.path("other")
        for size, step in ((2, 20), (4, 40), (1, 60)):
            with self.launch(size, "other", *settings, "--resume") as launch:
                wait_for(f"step {step}", lambda step=step: last_step(out) >= step, launch)
                launch[size - 1].send(signal.SIGTERM)
                self.finish(launch, 75)
            self.assertEqual(saved_step(out), last_step(out))
            self.assertLess(saved_step(out), 100)
        self.train(2, "other", *settings, "--resume")
        self.check_same(one, "other")
