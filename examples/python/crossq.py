"""Reinforcement learning without target networks: CrossQ on a pendulum, with and without normalized critics.

CrossQ (Bhatt et al., ICLR 2024) is Soft Actor-Critic without target networks. Its critics have Batch Renorm, and see
the state-action pairs of now and of the next step in one batch, so both have the same statistics. This script trains
it with three critics (no normalization, BatchNorm, Batch Renorm), all else equal, and evaluates the policy on the way.

The task is the classic pendulum: swing it up and hold it with a motor too weak to lift it directly. An episode has 200
steps. The return is its sum of rewards: about -1200 for a policy that does nothing useful, about -150 for a good one.

    python3 crossq.py [--quick] [--steps N] [--seeds N] [--seed N] [--threads N] [--png FILE]

Prints the return against environment steps as a table, mean and range over the seeds, and draws it in crossq.png. The
seeds train side by side: every network is a stack of independent ones, one group of channels each.
"""
import argparse
import math
import time

import torch
from torch import nn
from torch.nn import functional

import renorm
from png_chart import line_chart

WIDTH, BATCH, DISCOUNT, REWARD_SCALE = 64, 64, 0.99, 0.1
RANDOM_STEPS, POLICY_DELAY, LEARNING_RATE, TARGET_ENTROPY = 400, 3, 1e-3, -1.0
EPISODE, EVALUATION_EPISODES = 200, 10


class Pendulum:
    """`count` pendulums per generator. States and rewards have the shape [count, generators, ...]."""

    def __init__(self, generators, count=1):
        self.generators, self.count = generators, count
        self.reset()

    def reset(self):
        start = per_seed(self.generators, lambda g: torch.rand(self.count, 2, generator=g) * 2 - 1)
        self.angle, self.speed = start[..., 0] * math.pi, start[..., 1]

    def observe(self):
        return torch.stack([self.angle.cos(), self.angle.sin(), self.speed], -1)

    def step(self, action):
        """Applies an action in [-1, 1] for 0.05 s and returns the reward."""
        torque = 2 * action.squeeze(-1)
        from_top = torch.remainder(self.angle + math.pi, 2 * math.pi) - math.pi
        reward = -(from_top ** 2 + 0.1 * self.speed ** 2 + 0.001 * torque ** 2)
        self.speed = (self.speed + 0.05 * (15 * self.angle.sin() + 3 * torque)).clamp(-8, 8)
        self.angle = self.angle + 0.05 * self.speed
        return reward


class Replay:
    """All transitions so far: state, action, reward and next state of every seed."""

    def __init__(self, steps, seeds):
        self.rows, self.filled = torch.empty(steps, seeds, 3 + 1 + 1 + 3), 0

    def add(self, *parts):
        self.rows[self.filled] = torch.cat(parts, -1)
        self.filled += 1

    def sample(self, generators):
        index = per_seed(generators, lambda g: torch.randint(self.filled, (BATCH,), generator=g))
        return self.rows[index, torch.arange(len(generators))].split([3, 1, 1, 3], -1)


def per_seed(generators, draw):
    """Draws from each generator; dimension 1 of the result is the seed."""
    return torch.stack([draw(generator) for generator in generators], 1)


class Linear(nn.Module):
    """The linear layers of `copies` networks side by side: [batch, copies * inputs] to [batch, copies * outputs]."""

    def __init__(self, copies, inputs, outputs, generators):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(copies, inputs, outputs))
        self.bias = nn.Parameter(torch.empty(copies, 1, outputs))
        for parameter in self.parameters():
            for part, generator in zip(parameter.data.chunk(len(generators)), generators):
                part.uniform_(-inputs ** -0.5, inputs ** -0.5, generator=generator)

    def forward(self, x):
        x = x.unflatten(1, self.weight.shape[:2]).transpose(0, 1)
        return torch.baddbmm(self.bias, x, self.weight).transpose(0, 1).flatten(1)


def make_networks(copies, inputs, outputs, norm, generators):
    """Every copy has its own channels, so a norm normalizes each copy by itself."""
    return nn.Sequential(
        norm(copies * inputs), Linear(copies, inputs, WIDTH, generators), nn.ReLU(),
        norm(copies * WIDTH), Linear(copies, WIDTH, WIDTH, generators), nn.ReLU(),
        norm(copies * WIDTH), Linear(copies, WIDTH, outputs, generators),
    )


class Agent:
    def __init__(self, norm, generators):
        self.generators, seeds = generators, len(generators)
        self.actor = make_networks(seeds, 3, 2, lambda channels: nn.Identity(), generators)
        self.critics = make_networks(2 * seeds, 4, 1, norm, generators)  # two critics per seed
        self.log_alpha = torch.zeros(seeds, 1, requires_grad=True)
        self.optimizers = [torch.optim.Adam(parameters, LEARNING_RATE, betas=(0.5, 0.999)) for parameters in
                           (self.critics.parameters(), self.actor.parameters(), [self.log_alpha])]
        self.updates = 0

    def policy(self, state):
        """Mean and log of the standard deviation of the action before the tanh: [batch, seeds, 1] each."""
        mean, log_std = self.actor(state.flatten(1)).unflatten(1, [-1, 2]).chunk(2, -1)
        return mean, log_std.clamp(-5, 2)

    def act(self, state):
        """A random action and the log of its density."""
        mean, log_std = self.policy(state)
        noise = per_seed(self.generators, lambda g: torch.randn(len(state), 1, generator=g))
        before = mean + log_std.exp() * noise
        log_density = -0.5 * noise ** 2 - log_std - 0.5 * math.log(2 * math.pi)
        # The density of tanh(before): log(1 - tanh^2) in a form that does not overflow.
        return before.tanh(), log_density - 2 * (math.log(2) - before - functional.softplus(-2 * before))

    def value(self, state, action):
        """Both critics of every seed: [batch, seeds, 2]."""
        pair = torch.cat([state, action], -1)
        return self.critics(pair.repeat_interleave(2, 1).flatten(1)).unflatten(1, [-1, 2])

    def update(self, state, action, reward, following):
        self.update_critics(state, action, reward, following)
        self.updates += 1
        if self.updates % POLICY_DELAY == 0:
            self.update_actor(state)

    def update_critics(self, state, action, reward, following):
        with torch.no_grad():
            next_action, log_density = self.act(following)
        self.critics.train()
        # One batch for now and the next step: no target network.
        now, later = self.value(torch.cat([state, following]), torch.cat([action, next_action])).chunk(2)
        later = later.detach().min(-1, keepdim=True).values - self.log_alpha.detach().exp() * log_density
        target = REWARD_SCALE * reward + DISCOUNT * later
        self.descend(0, functional.mse_loss(now, target.expand_as(now), reduction="none").mean(0).sum())

    def update_actor(self, state):
        action, log_density = self.act(state)
        self.critics.eval()
        worth = self.value(state, action).min(-1, keepdim=True).values
        self.descend(1, (self.log_alpha.detach().exp() * log_density - worth).mean(0).sum())
        self.descend(2, -(self.log_alpha * (log_density.detach() + TARGET_ENTROPY).mean(0)).sum())

    def descend(self, which, loss):
        self.optimizers[which].zero_grad()
        loss.backward()
        self.optimizers[which].step()


@torch.no_grad()
def evaluate(agent, base_seed):
    """The return of the policy without noise, per seed: the mean over episodes from the same starts each time."""
    generators = [torch.Generator().manual_seed(base_seed + 1000) for _ in agent.generators]
    pendulums, total = Pendulum(generators, EVALUATION_EPISODES), 0.0
    for _ in range(EPISODE):
        total = total + pendulums.step(agent.policy(pendulums.observe())[0].tanh())
    return total.mean(0)


def train(norm, seeds, base_seed, steps, every):
    """Returns evaluated at steps 0, every, 2 * every, ...: [evaluations, seeds]."""
    generators = [torch.Generator().manual_seed(base_seed + seed) for seed in range(seeds)]
    agent, pendulum, replay = Agent(norm, generators), Pendulum(generators), Replay(steps, seeds)
    random_steps = min(RANDOM_STEPS, steps // 2)
    returns = [evaluate(agent, base_seed)]
    for step in range(1, steps + 1):
        state = pendulum.observe()
        if step <= random_steps:
            action = per_seed(generators, lambda g: torch.rand(1, 1, generator=g) * 2 - 1)
        else:
            with torch.no_grad():
                action = agent.act(state)[0]
        reward = pendulum.step(action)
        replay.add(state, action, reward.unsqueeze(-1), pendulum.observe())
        if step % EPISODE == 0:
            pendulum.reset()
        if step > random_steps:
            agent.update(*replay.sample(generators))
        if step % every == 0:
            returns.append(evaluate(agent, base_seed))
    return torch.stack(returns)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a short run that shows nothing, for tests")
    parser.add_argument("--steps", type=int, help="environment steps per seed")
    parser.add_argument("--seeds", type=int, default=3, help="independent trainings per critic")
    parser.add_argument("--seed", type=int, default=1, help="first seed")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--png", default="crossq.png", help="where to draw the curves")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    steps = options.steps or (128 if options.quick else 8000)
    every = max(steps // 16, 1)
    clip = renorm.ClipSchedule.paper(steps)
    norms = {
        "none": lambda channels: nn.Identity(),
        "BatchNorm": lambda channels: nn.BatchNorm1d(channels, momentum=0.01),
        "Batch Renorm": lambda channels: renorm.BatchRenorm1d(channels, momentum=0.01, clip=clip),
    }
    curves = {}
    for name, norm in norms.items():
        begin = time.perf_counter()
        curves[name] = train(norm, options.seeds, options.seed, steps, every)
        print(f"{name}: {time.perf_counter() - begin:.1f} s", flush=True)
    report(curves, every, options.png)


def report(curves, every, png):
    """`curves` is {name of the norm: returns [evaluations, seeds]}."""
    steps = [row * every for row in range(len(curves["none"]))]
    print("\nreturn per episode, mean over seeds (minimum .. maximum)")
    print(f"{'steps':>6}" + "".join(f" | {name:^24}" for name in curves))
    for row, step in enumerate(steps):
        cells = [f"{at.mean():7.0f} ({at.min():.0f} .. {at.max():.0f})" for at in (curve[row] for curve in curves.values())]
        print(f"{step:6d}" + "".join(f" | {cell:<24}" for cell in cells))
    line_chart(png, "Pendulum: return per episode, mean and range over seeds", "environment steps", steps,
               {name: curve.tolist() for name, curve in curves.items()})
    print(f"curves: {png}")


if __name__ == "__main__":
    main()
