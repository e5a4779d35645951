"""The page: what the template is given. Jinja2 escapes everything that was read from a file."""

import hashlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files as resources

from jinja2 import Environment, PackageLoader
from matplotlib.figure import Figure

import imlp
from imlp.report.figures import svg
from imlp.report.gather import ArmData, ModelData
from imlp.report.matrices import data_uri, examples, photo, picture
from imlp.report.tables import Table
from imlp.study.cost import counted, duration
from imlp.study.outcomes import ExperimentOutcome, Verdict
from imlp.study.scores import constant_alpha

QUESTION = "How much should a network know before it learns?"
FEW = 4  # models that fit into one sentence
VERDICTS = {"holds": "✓", "fails": "✗", "cannot tell": "?"}  # a mark beside the word, for those who see no colour


@dataclass(frozen=True)
class Section:
    """A part of the page: an experiment or a single arm."""

    id: str
    title: str
    arms: Sequence[ArmData]  # that it shows
    elsewhere: Sequence[ArmData] = ()  # arms that belong to it and that another section shows
    about: str = ""  # what keeps it from being whole
    outcome: ExperimentOutcome | None = None

    @property
    def verdicts(self) -> Sequence[Verdict]:
        return self.outcome.verdicts if self.outcome else [v for arm in self.arms for v in arm.verdicts]

    @property
    def seeds(self) -> int:
        return max((arm.seeds for arm in (*self.arms, *self.elsewhere)), default=0)

    @property
    def epochs(self) -> str:
        return " / ".join(dict.fromkeys(str(arm.arm.config.epochs) for arm in (*self.arms, *self.elsewhere)))

    @property
    def images(self) -> list[str]:
        return sorted({f"{size:,} images" for arm in self.arms if (size := arm.arm.config.train_size)})


def sections(arms: Sequence[ArmData], outcomes: Sequence[ExperimentOutcome]) -> list[Section]:
    """An arm is shown by the first experiment that names it; what is whole comes first."""
    ordered, left = [], {arm.arm.key: arm for arm in arms}
    for n, outcome in enumerate(outcomes, start=1):
        keys = {named.key: None for named in outcome.arms}
        elsewhere = [arm for arm in arms if arm.arm.key in keys and arm.arm.key not in left]
        parts = [left.pop(key) for key in keys if key in left]
        ordered.append(Section(f"experiment{n}", outcome.title, parts, elsewhere, outcome.shortfall, outcome=outcome))
    for arm in left.values():
        ordered.append(Section(arm.id, arm.name, [arm], about="" if arm.is_finished else "unfinished"))
    return sorted(ordered, key=lambda section: section.about != "")


def render(
    parts: Sequence[Section],
    arms: Sequence[ArmData],
    drawn: Mapping[str, Mapping[str, Figure]],
    tables: Mapping[str, Table],
    name: str,
    beside: Mapping[str, str],
) -> str:
    """The whole page: figures by arm and kind, tables by name, `name` for what was asked for, links."""
    loader = Environment(
        loader=PackageLoader("imlp.report", "."), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    loader.globals.update(drawn=drawn, svg=cache(svg), table=tables.get, MARKS=VERDICTS)
    loader.globals.update(picture=picture, photo=photo, data_uri=data_uri, valley=valley, duration=duration)
    loader.filters.update(counted=counted, verdicts=verdicts)
    lead = lead_arm(arms)
    one_run = len(parts) == 1 and lead is not None and len(lead.arm.runs) == 1 and parts[0].id == lead.id
    script = (resources("imlp.report") / "page.js").read_text("utf-8")
    text = loader.get_template("page.html").render(
        title=QUESTION if one_run else parts[0].title if len(parts) == 1 else name,
        sentence=(in_plain_words(lead) if one_run else in_numbers(lead)) if lead else "",
        sections=parts,
        arms=arms,
        lead=lead,
        one_run=one_run,
        runs=[run for arm in arms for run in arm.arm.runs],
        examples=examples(lead.arm.runs[0]) if one_run and lead else {},
        beside=beside,
        warnings=[text for arm in arms for text in arm.warnings],
        script=script,
        digest=b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        version=imlp.__version__,
        made=datetime.now(UTC),
    )
    return text.lstrip()


def verdicts(given: Sequence[Verdict], kind: str) -> list[Verdict]:
    """Those that hold, fail, or cannot be told."""
    return [one for one in given if (one.verdict if one.verdict in VERDICTS else "cannot tell") == kind]


def lead_arm(arms: Sequence[ArmData]) -> ArmData | None:
    """The arm to show first: finished, trained for longest, with most models."""

    def rank(arm: ArmData) -> tuple[bool, float, int]:
        config = arm.arm.config
        return arm.is_finished, config.epochs * float(config.train_size or "inf"), len(arm.models)

    return max(arms, key=rank, default=None)


def in_plain_words(arm: ArmData) -> str:
    """One run in a sentence or two: the network without structure, the one with most, and the prior."""
    last = {model.title: f"{model.epochs[-1].accuracy:.1f} %" for model in arm.models if model.epochs}
    lanes = [
        (lane.title if lane.is_plain else lane.short_title, last[model.title])
        for model in arm.models
        if (lane := model.lane) is not None and model.epochs
    ]
    prior = arm.models[0].title
    of_prior = f" The {arm.arm.prior_name} itself gets {last[prior]}." if prior in last else ""
    if not lanes:
        return f"No epoch is complete yet.{of_prior}"
    begin = "{} gets {} of the pictures right".format(*lanes[0])
    if len(lanes) == 1:
        return f"{begin}.{of_prior}"
    end = "{} gets {}".format(*lanes[-1])
    return f"The same MLP, trained {len(lanes)} times: {begin}; {end}.{of_prior}"


def valley(arm: ArmData) -> str:
    """Why a little structure of a prior is worse than none, where a lane of this run shows it."""
    last = {lane: m.epochs[-1].accuracy for m in arm.models if (lane := m.lane) is not None and m.epochs}
    plain = next((accuracy for lane, accuracy in last.items() if lane.is_plain), None)
    little = [lane for lane in last if lane.needs_prior and 0 < (constant_alpha(lane) or 0) < 1]
    below = [(lane, last[lane]) for lane in little if last[lane] < (plain or 0)]
    if not below:
        return ""
    lane, least = min(below, key=lambda pair: pair[1])
    return (
        f"{lane.short_title} gets less than the plain MLP, {least:.1f} % instead of {plain:.1f} %: a little structure "
        "is worse than none. The paper's explanation is that the two networks head for different solutions and disturb "
        "each other in between: the MLP learns something at every step, and the pull undoes part of it."
    )


def in_numbers(arm: ArmData) -> str:
    """The accuracies of an arm in one sentence: all of a few models, otherwise the ends."""

    def mean(model: ModelData) -> float:
        return model.score.mean if model.score else 0.0

    known = sorted((model for model in arm.models if model.score), key=mean, reverse=True)
    if not known:
        return "No run is finished yet."
    ends = [model for model in known if model.lane is None or model.lane.is_plain]
    rest = [model for model in known if model not in ends]
    few = len(known) <= FEW
    chosen = known if few else sorted([*ends, rest[0], rest[-1]], key=mean, reverse=True)
    texts = [f"{model.title} {str(model.score).replace('+-', '±')} %" for model in chosen]
    config = arm.arm.config
    images = f" of {config.train_size:,} images" if config.train_size else ""
    begin = (
        f"{arm.arm.config.measure.capitalize()} after {config.epochs} epochs{images}, {counted(arm.seeds, 'seed')}: "
    )
    more = "" if few else f" (the prior, alpha 0, the best and the lowest of {len(known)} models)"
    return f"{begin}{'; '.join(texts)}{more}."
