"""One run as a page to show to anybody: what each network learned, a matrix before and after, the curves, the meter.

No script and no network: it looks the same on a phone, on a desk and on paper.
"""

import io
import re
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from importlib.resources import files as resources
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from imlp.errors import RunError
from imlp.files import parse_json
from imlp.init import network_parameters
from imlp.networks import Layer, Network
from imlp.plot import in_shape, out_shape
from imlp.reference import matrix
from imlp.study.scores import PRIORS
from imlp.train.run_folder import RunFolder
from imlp.train.run_reader import Run

TITLE = "How much should a network know before it learns?"
MOST = 256  # rows or columns of a matrix that are shown, so that each can be seen
MEANING = {
    "cnn": "a convolution: each output sees a small window of the picture, and all windows share their weights",
    "mixer": "an MLP-Mixer: patches of the picture that share their weights",
}


def run_page(run: Run) -> str:
    """The page of one run; it needs an epoch, and shows matrices where a checkpoint has them."""
    if not run.rows:
        raise RunError(f"{run.folder} has no complete epoch yet", "let it train for a while")
    last = max(row["epoch"] for row in run.rows)
    rows = [row for row in run.rows if row["epoch"] == last]
    prior = PRIORS.get(run.config.network, run.config.network)
    names = {row["lane"]: _name(run, row, prior) for row in rows}
    parameters = (run.result or {}).get("parameters", {})
    config = run.config
    cadence = {"epoch": "after every epoch", "step": "after every step"}
    mixed = [lane for lane in config.lanes if lane.is_mixed_repeatedly]
    often = sorted({cadence.get(lane.every, f"every {lane.every} steps") for lane in mixed}) or ["at most once"]
    explained = (
        "A plain MLP multiplies by a matrix W with no idea what a picture is. Every structured layer is a matrix too, "
        f"W<sub>P</sub>; here of {MEANING.get(config.network, 'the prior')}. While both train on the same pictures, W "
        f"is moved towards it {' or '.join(often)}: W &larr; (1 &minus; &alpha;) W + &alpha; W<sub>P</sub>. Alpha says "
        "how much structure the MLP gets: 0 is none, 1 is all of it."
    )
    caption = f"{run.measure.capitalize()} after {last} of {config.epochs} epochs, one seed."
    if parameters:
        dense, small = parameters["dense"], parameters["prior"]
        caption += f" Each MLP has {dense:,} weights, the {prior} {small:,}."
    settings = f"{Path(config.data).name}, learning rate {config.lr:g}, seed {config.seed}"
    command = re.sub(r" --out[ =]\S+", "", str(run.env.get("command", "")))
    here = Template((resources("imlp.study") / "run_page.html").read_text("utf-8"))
    return here.substitute(
        title=escape(TITLE),
        lead=_lead(rows, names, prior),
        explained=explained,
        table=_table(rows, names),
        table_caption=escape(caption),
        matrices=_matrices(run, names),
        charts="".join(_charts(run, names)),
        charts_caption=(
            "First the accuracy by epoch, then the bias meter after the last: each bar is a layer's |W|². Shared is "
            "the part that is a structured layer, local what else stands where one can be non-zero, outside the rest."
        ),
        footer=(
            f"{escape(settings)}. Made with imlp: <code>{escape(command)}</code>. The idea: "
            "<em>Interpolated-MLPs: Controllable Inductive Bias</em> (Wu, Hong, Bai, Bachmann, 2024)."
        ),
    )


def _name(run: Run, row: dict[str, Any], prior: str) -> str:
    if row["lane"] == "prior":
        return f"{prior} (the prior)"
    return run.config.lanes[row["lane"]].title.removesuffix(", every step")


def _lead(rows: Sequence[dict[str, Any]], names: dict[Any, str], prior: str) -> str:
    """The ends in one sentence: the network without structure, the one with most, and the prior."""
    percent = {row["lane"]: f"{100 * row['test_accuracy']:.1f} %" for row in rows}
    lanes = [row["lane"] for row in rows if row["lane"] != "prior"]
    of_prior = f" The {escape(prior)} itself gets {percent['prior']}." if "prior" in percent else ""
    if len(lanes) < 2:
        return f"{escape(names[lanes[0]])} gets {percent[lanes[0]]} of the pictures right.{of_prior}"
    first, last = lanes[0], lanes[-1]
    return (
        f"The same MLP, trained {len(lanes)} times: {escape(names[first])} gets {percent[first]} of the pictures "
        f"right, {escape(names[last])} {percent[last]}.{of_prior}"
    )


def _table(rows: Sequence[dict[str, Any]], names: dict[Any, str]) -> str:
    lines = []
    for row in sorted(rows, key=lambda row: row["lane"] == "prior"):
        accuracy = 100 * row["test_accuracy"]
        lines.append(
            f'<tr class="{"prior" if row["lane"] == "prior" else ""}"><th scope="row">{escape(names[row["lane"]])}</th>'
            f'<td class="bar"><span style="width:{accuracy:.1f}%"></span></td>'
            f'<td class="number">{accuracy:.1f} %</td></tr>'
        )
    head = '<th>network</th><th></th><th class="number">accuracy</th>'
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _matrices(run: Run, names: dict[Any, str]) -> str:
    """A corner of one layer's matrix before training and after it, by model; nothing without a checkpoint."""
    for path in RunFolder(run.folder).checkpoints():
        try:
            layer, shown = _read(run, path, names)
        except (OSError, SafetensorError, ValueError, KeyError, TypeError):
            continue  # damaged: the one before it
        cards = "".join(
            f'<figure><img src="{_uri("png", _png(values))}" alt="{escape(name)}: entries of its matrix">'
            f"<figcaption>{escape(name)}</figcaption></figure>"
            for name, values in shown
        )
        size = "{} x {}".format(*shown[0][1].shape)
        about = (
            f"A corner ({size}) of the matrix of {escape(layer.name)}, which has {layer.spec.matrix_shape[0]:,} x "
            f"{layer.spec.matrix_shape[1]:,} entries: rows are outputs, columns inputs; blue is negative, red "
            "positive, white 0. Stripes are structure: the same few weights again and again, one step further down."
        )
        return f"<h2>The matrix inside</h2><p>{about}</p><div class='cards'>{cards}</div>"
    return ""


def _read(run: Run, path: Path, names: dict[Any, str]) -> tuple[Layer, list[tuple[str, np.ndarray]]]:
    with safe_open(path, framework="numpy") as file:
        state = parse_json((file.metadata() or {})["state"])
        network = run.config.make_network(tuple(state["image"]), state["classes"])
        layer = _layer(network)
        key, (rows, columns) = f"{layer.name}.weight", _corner(layer)
        before = np.asarray(network_parameters(network, dense=True, seed=run.config.seed)[key])
        shown = [("before training", before[:rows, :columns])]
        stack = file.get_slice(f"lanes/{key}")  # (lanes, M_out, M_in)
        for index, lane in enumerate(state["active"]):
            if lane in names:
                shown.append((names[lane], stack[index : index + 1, :rows, :columns].reshape(rows, columns)))
        if "prior" in names:
            prior: Any = matrix(layer.spec, file.get_tensor(f"prior/{key}").astype(np.float64))
            shown.append((names["prior"], prior[:rows, :columns].toarray()))
    return layer, shown


def _layer(network: Network) -> Layer:
    """The second layer that is mixed: it neither reads pixels nor ends in a point."""
    mixed = [layer for layer in network.layers if layer.interpolated]
    return mixed[min(1, len(mixed) - 1)]


def _corner(layer: Layer) -> tuple[int, int]:
    """Outputs and inputs of the first channel, as many as can be seen."""
    first = (int(np.prod(shape[1:])) for shape in (out_shape(layer.spec), in_shape(layer.spec)))
    rows, columns = (min(MOST, size) for size in first)
    return rows, columns


def _png(values: np.ndarray) -> bytes:
    """Blue, white and red; the strongest hundredth of the entries is as dark as it gets."""
    from matplotlib import colormaps
    from PIL import Image

    largest = float(np.quantile(np.abs(values), 0.99)) or float(np.abs(values).max()) or 1.0
    colours = colormaps["RdBu_r"](np.clip(0.5 + 0.5 * values / largest, 0, 1), bytes=True)[..., :3]
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(colours)).save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def _charts(run: Run, names: dict[Any, str]) -> list[str]:
    """The accuracy by epoch, and what each layer holds after the last."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    from imlp.plot import draw_meters
    from imlp.study.report.figures import written

    lanes = [lane for lane in names if lane != "prior"]
    curves, meter = (Figure(figsize=(5.4, 4.6), layout="constrained") for _ in range(2))
    axes = curves.subplots()
    for lane, name in names.items():
        rows = run.of(lane)
        shade = lanes.index(lane) / max(1, len(lanes) - 1) if lane != "prior" else 0.0
        colour, style = ("black", ":") if lane == "prior" else (colormaps["plasma"](0.85 * shade), "-")
        epochs, values = [row["epoch"] for row in rows], [100 * row["test_accuracy"] for row in rows]
        axes.plot(epochs, values, linestyle=style, color=colour, label=name, marker="o", markersize=3)
    axes.set(xlabel="epoch", ylabel=f"{run.measure}, %")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.grid(alpha=0.25)
    curves.legend(loc="outside lower center", ncols=2, fontsize=9)
    figures = {"accuracy by epoch; the last values are in the table above": curves}
    meters = {names[lane]: found for lane in lanes if (found := run.of(lane)[-1]["bias"])}
    if meters:
        draw_meters(meter, meters, columns=2)
        figures["bias meter by layer: which part is shared, local and outside"] = meter
    return [f'<img src="{_uri("svg+xml", written(own)["svg"])}" alt="{text}">' for text, own in figures.items()]


def _uri(kind: str, content: bytes) -> str:
    return f"data:image/{kind};base64,{b64encode(content).decode()}"
