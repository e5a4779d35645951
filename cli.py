from imlp.cli import run

run()
