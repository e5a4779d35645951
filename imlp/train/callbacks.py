"""What a run tells while it trains. A callback overrides what it wants to hear; the loop prints nothing itself."""

from typing import TYPE_CHECKING, Any

from imlp.spec.base import PARTS

if TYPE_CHECKING:
    from imlp.train.loop import Trainer

Row = dict[str, Any]


class Callback:
    """Is told of all progress and does nothing."""

    def started(self, trainer: "Trainer") -> None:
        """Before the first step, of a new run or of one that is resumed."""

    def stepped(self, trainer: "Trainer", images: int) -> None:
        """After each step, with the number of images in its batch."""

    def epoch_ended(self, trainer: "Trainer", rows: list[Row], seconds: dict[str, float]) -> None:
        """After each epoch: its rows of `metrics.jsonl`, the prior's first, and where the time went."""

    def warned(self, text: str) -> None:
        """Something that the user should know and that does not stop the run."""

    def ended(self, trainer: "Trainer", result: dict[str, Any]) -> None:
        """After the last epoch, with what `result.json` holds."""

    def close(self) -> None:
        """Whatever has ended the run."""


class TensorBoard(Callback):
    """Accuracy, loss and bias by epoch as TensorBoard's event files; the run's own files stay the truth."""

    def __init__(self, folder: Any):
        self.folder = folder

    def started(self, trainer: "Trainer") -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(self.folder))

    def epoch_ended(self, trainer: "Trainer", rows: list[Row], seconds: dict[str, float]) -> None:
        for row in rows:
            name = row["name"] if row["lane"] == "prior" else f"{row['lane']} {row['name']}"
            for key in ("test_accuracy", "test_loss", "train_loss"):
                self.writer.add_scalar(f"{key}/{name}", row[key], row["epoch"])
            for layer, shares in row.get("bias", {}).items():
                for part in PARTS:
                    self.writer.add_scalar(f"bias {part} {layer}/{name}", shares[part], row["epoch"])
        self.writer.flush()

    def ended(self, trainer: "Trainer", result: dict[str, Any]) -> None:
        self.writer.close()
