from imlp.cli import app

app()
