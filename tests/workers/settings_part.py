"""Settings that change a step: the results of 1, 2 and 4 processes agree with them."""
from processes import SMOOTH, WorkersTest, slurm_variables


class SettingsTest(WorkersTest):
    def check(self, *arguments):
        settings = [*SMOOTH, "--steps", "100", "--log-every", "1", "--eval-every", "100", *arguments]
        self.train(1, "one", *settings)
        for size in (2, 4):
            self.train(size, f"of-{size}", *settings, variables_of=lambda rank, size=size: slurm_variables(rank, size))
            self.check_same("one", f"of-{size}")

    def test_microbatches_and_clipped_gradients(self):
        """The limit is below the norms of half the steps."""
        self.check("--microbatch", "4", "--clip-gradient", "0.13")

    def test_split_pairs_and_averaged_weights(self):
        self.check("--sampler", "labels:4x2", "--split-pairs", "--ema-decay", "0.9")
        self.assertIn("average.safetensors", self.tensor_files("of-4"))

    def test_dealt_images_and_chunks(self):
        """Each minibatch of 8 examples takes several passes."""
        self.check("--sampler", "labels:4x2", "--deal", "--microbatch", "2", "--chunk", "3")

    def test_batchnorm_and_adamw(self):
        self.check("--norm", "batchnorm", "--optimizer", "adamw", "--lr", "0.001", "--weight-decay", "0.01",
                   "--ema-decay", "0")
        self.assertNotIn("average.safetensors", self.tensor_files("of-4"))
