"""The limits of r and d as a function of the training step."""
import math
import operator
from numbers import Real
from typing import Any, NamedTuple

# Steps are int64 in tensors and operators.
_TOO_LARGE = 2**63


def _is_truth_value(value: Any) -> bool:
    """Also one of NumPy or a tensor, which have an index too."""
    return isinstance(value, bool) or str(getattr(value, "dtype", "")) in ("bool", "torch.bool")


def whole_number(what: str, value: Any, low: int) -> int:
    """The value as int, also one of NumPy or of a tensor; an error if it is below `low` or no integer."""
    try:
        number = None if _is_truth_value(value) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < low:
        raise ValueError(f"{what} must be an integer {'>= 0' if low == 0 else '> 0'}, got {value!r:.60}")
    if number >= _TOO_LARGE:
        raise ValueError(f"{what} must be below 2**63, got {value}")
    return number


class ClipSchedule(NamedTuple):
    """Batchnorm (r_max = 1, d_max = 0) up to and including step `hold`, then linear to `r_max` at step `r_step` and to
    `d_max` at step `d_step`, constant afterwards. A negative `hold` gives `r_max` and `d_max` at every step.

    Build it with one of the static methods, which check the numbers:

    >>> ClipSchedule.paper(13000)
    ClipSchedule(hold=500, r_max=3.0, r_step=4000, d_max=5.0, d_step=2500)
    >>> ClipSchedule.paper(13000).at(2500)
    (2.142857142857143, 5.0)
    """

    hold: int
    r_max: float
    r_step: int
    d_max: float
    d_step: int

    @staticmethod
    def paper(steps: int = 130_000) -> "ClipSchedule":
        """The paper's schedule: hold 5,000, r_max 3 at 40,000, d_max 5 at 25,000, in a run of 130,000 steps. For a run
        of another length every step is scaled in proportion."""
        length = whole_number("ClipSchedule.paper: steps", steps, 1)

        def scaled(step: int) -> int:
            return math.floor(step * length / 130_000 + 0.5)

        return ClipSchedule(scaled(5_000), 3.0, scaled(40_000), 5.0, scaled(25_000))

    @staticmethod
    def ramp(hold: int, r_max: float, r_step: int, d_max: float, d_step: int) -> "ClipSchedule":
        """r_max >= 1, d_max >= 0, 0 <= hold <= r_step, hold <= d_step. Limits may be infinite: from hold + 1 on."""
        schedule = ClipSchedule(hold, r_max, r_step, d_max, d_step)._checked()
        if schedule.hold < 0:
            raise ValueError(f"ClipSchedule.ramp: hold must be >= 0, got {hold}")
        return schedule

    @staticmethod
    def constant(r_max: float, d_max: float) -> "ClipSchedule":
        """The same limits at every step."""
        return ClipSchedule(-1, r_max, 0, d_max, 0)._checked()

    @staticmethod
    def batch_norm() -> "ClipSchedule":
        """r = 1 and d = 0: plain batchnorm."""
        return ClipSchedule.constant(1.0, 0.0)

    @staticmethod
    def unlimited() -> "ClipSchedule":
        """No clipping: the output of training is that of inference."""
        return ClipSchedule.constant(math.inf, math.inf)

    def at(self, step: int) -> "tuple[float, float]":
        """(r_max, d_max) at a step."""
        if self.hold < 0:
            return self.r_max, self.d_max
        if step <= self.hold:
            return 1.0, 0.0

        def limit(start: float, end: float, last: int) -> float:
            return end if step >= last else start + (end - start) * (step - self.hold) / (last - self.hold)

        return limit(1.0, self.r_max, self.r_step), limit(0.0, self.d_max, self.d_step)

    def _checked(self) -> "ClipSchedule":
        """The schedule with each number in its own type."""
        for name, value in self._asdict().items():
            if isinstance(value, bool) or not isinstance(value, Real):
                raise TypeError(f"ClipSchedule: {name} must be a number, got {value!r:.60}")
        for name in ("hold", "r_step", "d_step"):
            value = getattr(self, name)
            if value % 1 != 0:  # NaN for infinity and NaN
                raise ValueError(f"ClipSchedule: {name} must be a whole number, got {value}")
            if value >= _TOO_LARGE:
                raise ValueError(f"ClipSchedule: {name} must be below 2**63, got {value}")
        if not self.r_max >= 1:
            raise ValueError(f"ClipSchedule: r_max must be >= 1, got {self.r_max}")
        if not self.d_max >= 0:
            raise ValueError(f"ClipSchedule: d_max must be >= 0, got {self.d_max}")
        if self.hold >= 0 and not self.hold <= min(self.r_step, self.d_step):
            raise ValueError(
                f"ClipSchedule: hold must be <= r_step and d_step, got {self.hold}, {self.r_step} and {self.d_step}"
            )
        return ClipSchedule(int(self.hold), float(self.r_max), int(self.r_step), float(self.d_max), int(self.d_step))
