"""A pair trained in one process, or by two with DistributedDataParallel (gloo) that meet at a file."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import imlp.nn


def train(rank, file):
    """The dense model after six steps; `rank` is 0 or 1, each with half of every batch, or None for one process."""
    if rank is not None:
        dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    rng = torch.Generator().manual_seed(0)
    prior = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)).double()
    for parameter in prior.parameters():
        nn.init.uniform_(parameter, -0.1, 0.1, generator=rng)
    model = imlp.nn.densify(prior, (3, 6, 6), init="random", generator=rng)
    images = torch.randn(6, 8, 3, 6, 6, dtype=torch.float64, generator=rng)
    labels = torch.randint(3, (6, 8), generator=rng)
    own = slice(None) if rank is None else slice(4 * rank, 4 * rank + 4)
    pair = [network if rank is None else DistributedDataParallel(network) for network in (prior, model)]
    optimizers = [torch.optim.Adam(network.parameters(), lr=1e-2) for network in pair]
    knob = imlp.nn.Interpolation(pair[1], pair[0], alpha=0.1)
    for x, y in zip(images, labels, strict=True):
        for network, optimizer in zip(pair, optimizers, strict=True):
            loss = nn.functional.cross_entropy(network(x[own]), y[own])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        knob.step()
    if rank is not None:
        torch.save(model.state_dict(), f"{file}.{rank}.pt")
        dist.destroy_process_group()
    return model.state_dict()
