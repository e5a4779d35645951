"""Your own PyTorch model as a prior, in your own training loop.

    python examples/own_model.py                      # a data set that is drawn by a program: no download
    python examples/own_model.py --data cifar10       # after: python cli.py data fetch cifar10

`prior` is an ordinary network. `model` is the same network with a dense layer in place of every convolution. Both are
trained on the same batches, each by its own optimizer, and after every step the knob moves the dense layers a little
towards the convolutions.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import imlp.nn
from imlp.data import load_data_set


class Network(nn.Module):
    """A small residual network. Nothing in it knows of imlp."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU())
        self.block = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU())
        self.down = nn.Sequential(nn.Conv2d(4, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Linear(8 * 8 * 8, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.stem(images)
        x = x + self.block(x)
        return self.head(self.down(x).flatten(1))


def loaders(name: str, images: int) -> tuple[DataLoader, DataLoader, int]:
    """Training and test images, standardised, and how many classes there are; put your own here."""
    data = load_data_set(name, train_size=images, test_size=max(1, images // 4))
    mean, std = (torch.tensor(numbers, dtype=torch.float32).view(-1, 1, 1) for numbers in (data.mean, data.std))

    def dataset(x, y) -> TensorDataset:
        return TensorDataset((torch.tensor(x).float() / 255 - mean) / std, torch.tensor(y))

    train, test = dataset(data.x, data.y), dataset(data.x_test, data.y_test)
    return DataLoader(train, batch_size=64, shuffle=True), DataLoader(test, batch_size=500), data.n_classes


@torch.no_grad()
def accuracy(network: nn.Module, loader: DataLoader) -> float:
    network.eval()
    correct = sum(int((network(images).argmax(1) == labels).sum()) for images, labels in loader)
    network.train()
    return correct / len(loader.dataset)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="shapes", help="shapes, cifar10, a folder of class folders, or an .npz")
    parser.add_argument("--alpha", default="0.1", help="0: a plain MLP; 1: the prior; or a schedule, like decay:0.5:2")
    parser.add_argument("--images", type=int, default=2000, help="how many to train on")
    parser.add_argument("--epochs", type=int, default=5)
    given = parser.parse_args()

    torch.manual_seed(0)
    train, test, classes = loaders(given.data, given.images)
    prior = Network(classes)
    model = imlp.nn.densify(prior, (3, 32, 32), init="random")
    knob = imlp.nn.Interpolation(model, prior, alpha=given.alpha, steps=given.epochs * len(train))
    slow, fast = (torch.optim.Adam(network.parameters(), lr=1e-3) for network in (prior, model))

    for epoch in range(1, given.epochs + 1):
        for images, labels in train:
            for network, optimizer in ((prior, slow), (model, fast)):
                loss = nn.functional.cross_entropy(network(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            knob.step()
        print(f"epoch {epoch}: prior {accuracy(prior, test):.1%}, dense model {accuracy(model, test):.1%}")
    print(imlp.nn.bias_meter(model, prior))


if __name__ == "__main__":
    main()
