"""Forward and backward pass of a convolution: `conv2d` and the methods of `imlp.accel.products`.

Run: python benchmarks/convolutions.py [--batch 128] [--threads 2] [--repeats 30]

A star marks the method that `imlp` chooses; the constants that decide were measured with this benchmark.
"""

import statistics
from collections.abc import Callable

import torch
from measure import console, interleaved, print_machine, run, table

from imlp import networks
from imlp.accel.layers import structured
from imlp.accel.products import Patches, Products, Quads, Strips, products_for
from imlp.spec import Conv

WAYS: dict[Products | None, str] = {None: "conv2d", Strips: "strips", Patches: "patches", Quads: "quads"}
OTHERS = [
    ((16, 4, 4), 32, 2),
    ((128, 4, 4), 128, 1),
    ((256, 4, 4), 512, 2),
    ((128, 8, 8), 256, 2),
    ((256, 8, 8), 256, 1),
    ((64, 16, 16), 128, 2),
]


def steps(spec: Conv, batch: int) -> dict[str, Callable[[], object]]:
    """The methods that can compute this convolution, by name."""
    weight, bias = torch.randn(spec.weight_shape), torch.zeros(spec.bias_shape)
    x, dy = (torch.randn(batch, size) for size in reversed(spec.matrix_shape))

    def step(made: Products | None) -> Callable[[], object]:
        stored = weight if made is None else made.stored(weight)
        products = None if made is None else made(spec, like=weight)
        return lambda: structured(x, spec, stored, bias, products=products)[1](dy)

    quads = products_for(spec, x.device) is Quads
    return {name: step(made) for made, name in WAYS.items() if made is not Quads or quads}


@torch.no_grad()
def main(batch: int = 128, threads: int = 2, repeats: int = 30) -> None:
    torch.set_num_threads(threads)
    print_machine()
    specs = [layer.spec for layer in networks.cnn().layers]
    specs += [Conv(shape, o, kernel=3, stride=stride, padding=1) for shape, o, stride in OTHERS]
    title = f"ms for forward and backward, batch {batch}, {threads} threads, {repeats} turns"
    result = table(title, "convolution", *WAYS.values())
    for spec in specs:
        seconds = interleaved(steps(spec, batch), repeats=repeats)
        taken = WAYS[products_for(spec, torch.device("cpu"))]
        cells = [f"{1e3 * statistics.median(s):.2f}{' *' if name == taken else '  '}" for name, s in seconds.items()]
        result.add_row(f"{spec.in_shape} -> {spec.out_shape}", *cells)
    console.print(result)


if __name__ == "__main__":
    run(main)
