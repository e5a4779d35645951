"""`bench`: list and run the benchmarks, each of which compares alternatives in one run."""

import ast
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from imlp.commands.console import out, print_facts
from imlp.errors import ConfigError, known

app = typer.Typer(add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False)
FOLDER = Path(__file__).parents[2] / "benchmarks"


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def bench(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="A benchmark. Default: list all.")] = None,
) -> None:
    """Measure the speed of this machine. Each benchmark runs alternatives in turns and prints ratios and versions.

    Options after the name are passed to the benchmark: `bench priors --repeats 30`, `bench step --help`.
    """
    if not FOLDER.is_dir():
        raise ConfigError("the benchmarks are not installed with the package", "run this in a clone of the repository")
    if name in ("-h", "--help"):
        print(context.get_help())
        return
    sources = {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.py"))}
    main = {stem: text for stem, text in sources.items() if 'if __name__ == "__main__"' in text}
    runnable = {stem: (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0] for stem, text in main.items()}
    if name is None:
        print_facts(runnable)
        out.print("to run one: python cli.py bench NAME (on an idle machine; some take minutes)", soft_wrap=True)
        return
    script = FOLDER / f"{known(name, runnable, 'benchmark')}.py"
    raise typer.Exit(subprocess.run([sys.executable, str(script), *context.args], check=False).returncode)
