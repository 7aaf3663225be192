"""renorm.load_foreign: the conventions of other implementations, with values computed by hand.

usage: python3 foreign_test.py        (RENORM_LIBRARY selects the library, "none" the tensor implementation)
"""
import copy
import unittest

import numpy
import torch

import renorm


def close(test, actual, expected, tolerance=1e-6):
    expected = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(actual.detach().double(), expected, rtol=tolerance, atol=tolerance)


def evaluated(layer, *rows):
    return layer.eval()(torch.tensor(rows, dtype=torch.float32))


def keras(**changes):
    # moving_stddev^2 = moving_variance + 0.001: 4 = 3.999 + 0.001, 0.25 = 0.249 + 0.001.
    arrays = dict(
        gamma=[2.0, 3.0], beta=[0.5, -1.0], moving_mean=[1.0, -2.0], moving_variance=[3.999, 0.249],
        moving_stddev=[2.0, 0.5], renorm_mean=[9.0, 9.0], renorm_stddev=[8.0, 8.0],
    )
    arrays.update(changes)
    return {name: numpy.array(value, dtype=numpy.float32) for name, value in arrays.items() if value is not None}


class Keras(unittest.TestCase):
    def check(self, layer):
        close(self, layer.running_mean, [1.0, -2.0])
        close(self, layer.running_std, [2.0, 0.5])
        close(self, layer.weight, [2.0, 3.0])
        close(self, layer.bias, [0.5, -1.0])
        # 2 (5 - 1) / 2 + 0.5 = 4.5; 3 (-1 + 2) / 0.5 - 1 = 5.
        close(self, evaluated(layer, [5.0, -1.0]), [[4.5, 5.0]])

    def test_variables_by_name(self):
        layer = renorm.load_foreign(renorm.BatchRenorm1d(2), keras())
        self.check(layer)
        self.assertEqual(layer.eps, 1e-3)
        self.assertEqual(int(layer.num_batches_tracked), 0)

    def test_list_of_get_weights(self):
        self.check(renorm.load_foreign(renorm.BatchRenorm1d(2), list(keras().values())))

    def test_names_of_keras_2(self):
        arrays = {f"batch_normalization/{name}:0": value for name, value in keras().items()}
        self.check(renorm.load_foreign(renorm.BatchRenorm1d(2), arrays))

    def test_variance_of_inference_without_a_stddev(self):
        """TensorFlow 1 has no moving_stddev, and weights of its debiased averages."""
        arrays = keras(moving_stddev=None)
        arrays.update(renorm_mean_weight=numpy.float32(0.9), renorm_stddev_weight=numpy.float32(0.9))
        self.check(renorm.load_foreign(renorm.BatchRenorm1d(2), arrays))

    def test_eps_and_momentum_are_those_of_keras(self):
        # sqrt(3.999 + 5.001) = 3; 0.9 is the weight of the old value.
        arrays = keras(moving_stddev=None, moving_variance=[3.999, 3.999])
        layer = renorm.load_foreign(renorm.BatchRenorm1d(2), arrays, "keras", eps=5.001, momentum=0.9)
        close(self, layer.running_std, [3.0, 3.0])
        self.assertEqual(layer.eps, 5.001)
        self.assertEqual(layer.momentum, 0.1)

    def test_layer_without_scale(self):
        layer = renorm.load_foreign(renorm.BatchRenorm1d(2, scale=False), keras(gamma=None))
        close(self, layer.bias, [0.5, -1.0])
        with self.assertRaisesRegex(KeyError, "'gamma' is missing; a layer without it needs scale=False"):
            renorm.load_foreign(renorm.BatchRenorm1d(2), keras(gamma=None))

    def test_layers_of_a_model_by_name(self):
        model = torch.nn.Sequential(torch.nn.Linear(3, 2), renorm.BatchRenorm1d(2))
        kernel = model[0].weight.clone()
        arrays = {f"bn_7/{name}": value for name, value in keras().items()}
        arrays["dense/kernel"] = numpy.zeros((3, 2))
        renorm.load_foreign(model, arrays, names={"bn_7": "1"})
        self.check(model[1])
        self.assertTrue(torch.equal(model[0].weight, kernel))


class Ludvb(unittest.TestCase):
    def state(self):
        return {
            "running_mean": torch.tensor([1.0, -2.0]), "running_std": torch.tensor([2.0, 0.5]),
            "num_batches_tracked": torch.tensor(7000), "weight": torch.tensor([2.0, 3.0]),
            "bias": torch.tensor([0.5, -1.0]),
        }

    def test_std_is_copied(self):
        layer = renorm.load_foreign(renorm.BatchRenorm1d(2), self.state())
        close(self, layer.running_std, [2.0, 0.5])
        close(self, evaluated(layer, [5.0, -1.0]), [[4.5, 5.0]])
        # std + 0.001 and sqrt(var + 0.000001) have the same minimum.
        self.assertAlmostEqual(layer.eps, 1e-6)

    def test_position_in_the_schedule(self):
        layer = renorm.load_foreign(renorm.BatchRenorm1d(2), self.state(), source="ludvb")
        self.assertEqual(int(layer.num_batches_tracked), 7000)
        # Its schedule is the paper's: 2 / 35000 * 7000 + 25 / 35 and 5 / 20000 * 7000 - 25 / 20.
        r_max, d_max = layer.clip.at(7000)
        self.assertAlmostEqual(r_max, 1.1142857142857143)
        self.assertAlmostEqual(d_max, 0.5)


class StableBaselines(unittest.TestCase):
    def test_sb3_contrib(self):
        state = {
            "ra_mean": torch.tensor([1.0, -2.0]), "ra_var": torch.tensor([3.999, 0.249]),
            "steps": torch.tensor(100001), "scale": torch.tensor([2.0, 3.0]), "bias": torch.tensor([0.5, -1.0]),
        }
        layer = renorm.load_foreign(renorm.BatchRenorm1d(2), state, momentum=0.02)
        close(self, layer.running_std, [2.0, 0.5])
        close(self, evaluated(layer, [5.0, -1.0]), [[4.5, 5.0]])
        self.assertEqual(int(layer.num_batches_tracked), 100001)
        self.assertEqual((layer.eps, layer.momentum), (1e-3, 0.02))

    def flax(self):
        return {
            "params": {"scale": numpy.float32([2, 3]), "bias": numpy.float32([0.5, -1])},
            "batch_stats": {
                "mean": numpy.float32([1, -2]), "var": numpy.float32([3.999, 0.249]), "steps": 42, "r_max": 3,
                "d_max": 5,
            },
        }

    def test_sbx(self):
        layer = renorm.load_foreign(renorm.BatchRenorm1d(2), self.flax(), momentum=0.99)
        close(self, layer.running_std, [2.0, 0.5])
        close(self, evaluated(layer, [5.0, -1.0]), [[4.5, 5.0]])
        self.assertEqual(int(layer.num_batches_tracked), 42)
        self.assertEqual((layer.eps, layer.momentum), (1e-3, 0.01))

    def test_sbx_layers_inside_of_a_model(self):
        one = self.flax()
        variables = {
            "params": {"Dense_0": {"kernel": numpy.zeros((3, 2))}, "BatchRenorm_0": one["params"]},
            "batch_stats": {"BatchRenorm_0": one["batch_stats"]},
        }
        model = torch.nn.Sequential(torch.nn.Linear(3, 2), renorm.BatchRenorm1d(2))
        renorm.load_foreign(model, variables, names={"BatchRenorm_0": "1"})
        close(self, model[1].running_std, [2.0, 0.5])
        with self.assertRaisesRegex(KeyError, "'1.mean' is missing"):
            renorm.load_foreign(model, variables)


    def test_schedules_that_switch_after_a_warm_up(self):
        warm_up = 1000
        sb3 = renorm.ClipSchedule.ramp(warm_up, 3, warm_up + 1, 5, warm_up + 1)  # steps > warm_up
        sbx = renorm.ClipSchedule.ramp(warm_up - 1, 3, warm_up, 5, warm_up)  # steps >= warm_up
        self.assertEqual([sb3.at(step) for step in (1000, 1001)], [(1, 0), (3, 5)])
        self.assertEqual([sbx.at(step) for step in (999, 1000)], [(1, 0), (3, 5)])


class PyTorch(unittest.TestCase):
    def state(self):
        # 8.99999 + 0.00001 = 9, 0.24999 + 0.00001 = 0.25.
        return {
            "running_mean": torch.tensor([1.0, -2.0]), "running_var": torch.tensor([8.99999, 0.24999]).double(),
            "num_batches_tracked": torch.tensor(11), "weight": torch.tensor([3.0, 1.0]),
            "bias": torch.tensor([0.0, 1.0]),
        }

    def test_torchrl(self):
        layer = renorm.load_foreign(renorm.BatchRenorm1d(2), self.state(), source="torchrl")
        close(self, layer.running_std, [3.0, 0.5])
        # 3 (7 - 1) / 3 = 6; (-1 + 2) / 0.5 + 1 = 3.
        close(self, evaluated(layer, [7.0, -1.0]), [[6.0, 3.0]])
        self.assertEqual(int(layer.num_batches_tracked), 11)

    def test_batchnorm(self):
        layer = renorm.load_foreign(renorm.BatchRenorm1d(2), self.state())
        close(self, layer.running_std, [3.0, 0.5])
        close(self, evaluated(layer, [7.0, -1.0]), [[6.0, 3.0]])
        self.assertEqual(int(layer.num_batches_tracked), 0, "the schedule starts with Batch Renorm")

    def test_batchnorm_with_a_cumulative_average(self):
        layer = renorm.load_foreign(renorm.BatchRenorm1d(2, momentum=None), self.state())
        self.assertEqual(int(layer.num_batches_tracked), 11)

    def test_whole_model(self):
        torch.manual_seed(1)
        theirs = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4, eps=1e-3), torch.nn.ReLU(), torch.nn.BatchNorm2d(4)
        )
        theirs(torch.randn(8, 3, 5, 5))
        ours = copy.deepcopy(theirs)
        ours[1] = renorm.BatchRenorm2d(4)
        torch.nn.init.zeros_(ours[0].weight)
        ours[3].reset_running_stats()
        renorm.load_foreign(ours, theirs.state_dict(), eps=1e-3)
        x = torch.randn(2, 3, 6, 6)
        torch.testing.assert_close(ours.eval()(x), theirs.eval()(x), rtol=1e-5, atol=1e-6)

    def test_shared_layer(self):
        norm = renorm.BatchRenorm1d(2)
        model = torch.nn.Sequential(norm, torch.nn.ReLU(), norm)
        state = {f"{path}.{name}": value for path in (0, 2) for name, value in self.state().items()}
        renorm.load_foreign(model, state)
        close(self, norm.running_std, [3.0, 0.5])


class Errors(unittest.TestCase):
    def refuse(self, error, message, state, *arguments, layer=None, **options):
        layer = renorm.BatchRenorm1d(2) if layer is None else layer
        before = copy.deepcopy(layer.state_dict())
        with self.assertRaisesRegex(error, message) as caught:
            renorm.load_foreign(layer, state, *arguments, **options)
        self.assertNotIn("\n", str(caught.exception))
        for name, value in layer.state_dict().items():
            self.assertTrue(torch.equal(value, before[name]), name)
        self.assertEqual(getattr(layer, "eps", 1e-5), 1e-5)

    def test_keys(self):
        self.refuse(KeyError, "'moving_mean' is missing", keras(moving_mean=None), "keras")
        self.refuse(KeyError, "'moving_variance' is missing", keras(moving_variance=None, moving_stddev=None))
        self.refuse(KeyError, "'beta' is missing; for a layer without it, add zeros", keras(beta=None))
        self.refuse(KeyError, "unexpected 'kernel'; only norms are read", dict(keras(), kernel=numpy.zeros(2)))
        self.refuse(KeyError, "unexpected 'moving_mean'", dict(PyTorch().state(), moving_mean=[0, 0]), "batchnorm")
        self.refuse(KeyError, "'running_std' is missing", PyTorch().state(), "ludvb")

    def test_values(self):
        self.refuse(ValueError, r"'moving_mean' has shape \[3\], expected \[2\]", keras(moving_mean=[1, 2, 3]))
        self.refuse(ValueError, "'moving_stddev' has a value that is not above 0", keras(moving_stddev=[1, 0]))
        negative = keras(moving_stddev=None, moving_variance=[1, -1])
        self.refuse(ValueError, "'moving_variance' has a value below 0", negative)
        self.refuse(ValueError, "'beta' has a value that is not finite", keras(beta=[1, float("nan")]))
        self.refuse(ValueError, "'gamma' must be an array of numbers, got str", dict(keras(), gamma="x"))
        self.refuse(ValueError, "'moving_mean' has a value that is not finite in torch.float32", dict(keras(), moving_mean=numpy.array([1e300, 0])))
        self.refuse(ValueError, "'moving_stddev' has a value that is not above 0 in torch.float32", dict(keras(), moving_stddev=numpy.array([1, 1e-60])))
        self.refuse(ValueError, "'beta' has no values: it is on the meta device", dict(keras(), beta=torch.ones(2, device="meta")))
        self.refuse(ValueError, "'num_batches_tracked' must be one whole number",
                    dict(Ludvb().state(), num_batches_tracked=-1))

    def test_parameters_that_the_layer_does_not_have(self):
        layer = renorm.BatchRenorm1d(2, affine=False)
        self.refuse(ValueError, "'gamma' must be all 1, because the layer does not have it", keras(), layer=layer)
        renorm.load_foreign(layer, keras(gamma=[1, 1], beta=[0, 0]))
        close(self, layer.running_std, [2.0, 0.5])

    def test_arguments(self):
        known = "batchnorm, keras, ludvb, sb3, sbx, torchrl"
        self.refuse(ValueError, f"source must be one of {known}, got 'tf'", keras(), "tf")
        self.refuse(TypeError, "source must be a string", keras(), ["keras"])
        self.refuse(ValueError, "no known source has the keys 'a', 'b'; pass source=", {"a": 1, "b": 2})
        self.refuse(ValueError, "state_dict is empty", {})
        self.refuse(ValueError, "names is empty", keras(), names={})
        self.refuse(ValueError, "eps must be > 0", keras(), eps=0)
        self.refuse(ValueError, "momentum must be in", keras(), momentum=1.5)
        self.refuse(ValueError, "7 arrays", list(keras().values())[:6])
        self.refuse(TypeError, "must be a mapping or a list", 3)
        self.refuse(ValueError, "no Batch Renorm layer '1'", keras(), names={"bn": "1"})
        with self.assertRaisesRegex(ValueError, "has no Batch Renorm layer"):
            renorm.load_foreign(torch.nn.Linear(2, 2), keras())

    def test_second_layer_of_a_model(self):
        model = torch.nn.Sequential(renorm.BatchRenorm1d(2), renorm.BatchRenorm1d(2))
        state = {f"{path}.{name}": value for path in (0, 1) for name, value in PyTorch().state().items()}
        del state["1.running_var"]
        self.refuse(KeyError, "'1.running_var' is missing", state, layer=model)
        self.assertEqual([layer.eps for layer in model], [1e-5, 1e-5])

    def test_other_layers_of_a_model(self):
        model = torch.nn.Sequential(torch.nn.Linear(3, 2), renorm.BatchRenorm1d(2))
        state = {f"1.{name}": value for name, value in PyTorch().state().items()}
        self.refuse(KeyError, "'0.weight' is missing", state, layer=model)
        state.update({"0.weight": torch.zeros(2, 2), "0.bias": torch.zeros(2)})
        self.refuse(ValueError, r"'0.weight' has shape \[2, 2\], expected \[2, 3\]", state, layer=model)
        state.update({"0.weight": torch.zeros(2, 3), "2.bias": torch.zeros(2)})
        self.refuse(KeyError, "unexpected '2.bias'", state, layer=model)


class Eps(unittest.TestCase):
    def test_batchnorm_keeps_the_eps_of_each_layer(self):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3, eps=0.1)).eval()
        model[1].running_var.fill_(0.01)
        x = torch.randn(4, 3)
        converted = renorm.convert(copy.deepcopy(model))
        renorm.load_foreign(converted, model.state_dict())
        self.assertEqual(converted[1].eps, 0.1)
        torch.testing.assert_close(converted(x), model(x))


if __name__ == "__main__":
    unittest.main()
