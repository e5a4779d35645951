"""Where the trials of a search are kept: in a file in its folder, or in a database that several machines share."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imlp.errors import ConfigError, RunError
from imlp.study.search_space import import_optuna

if TYPE_CHECKING:
    import optuna


class TrialStorage:
    """Optuna's storage for a search in `folder`; `url` None: a journal in that folder."""

    def __init__(self, folder: Path, url: str | None):
        self.journal, self.url = folder / "trials.journal", url

    def open(self, name: str) -> "optuna.Study":
        """The study of that name, which is made if there is none."""
        optuna = import_optuna()
        try:
            if self.url is None:
                backend = optuna.storages.journal.JournalFileBackend(str(self.journal))
                storage = optuna.storages.JournalStorage(backend)
            else:
                storage = optuna.storages.RDBStorage(self.url)
            options = {"storage": storage, "direction": "maximize", "load_if_exists": True}
            study: Any = optuna.create_study(study_name=name, **options)
        except Exception as error:  # of Optuna, of SQLAlchemy, or of a database's driver
            remedy = "give --storage a URL like sqlite:///trials.db, or leave it out"
            raise ConfigError(self._problem(error), remedy) from error
        return study

    @contextmanager
    def explained(self) -> Iterator[None]:
        """A file or a database that is lost on the way is an error with a remedy."""
        try:
            yield
        except (OSError, import_optuna().exceptions.StorageInternalError) as error:
            raise RunError(self._problem(error), "fix that, then run the same command again") from error

    def _problem(self, error: Exception) -> str:
        where = re.sub("//.*@", "//", self.url or str(self.journal))  # without a password
        return f"cannot keep the trials in {where}: {' '.join(str(error.__cause__ or error).split())}"
