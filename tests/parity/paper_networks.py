"""The networks of tables 2 and 3, and a ResNet, as `torch.nn` modules, written without any code of imlp.

`load` copies our parameters into them by position, which is all that the two have in common.
"""

import torch
from torch import nn


def s_cnn(classes: int = 10) -> nn.Module:
    def conv(c_in: int, c_out: int, stride: int) -> nn.Conv2d:
        return nn.Conv2d(c_in, c_out, 3, stride=stride, padding=1)

    def norm(*shape: int) -> nn.Sequential:
        return nn.Sequential(nn.LayerNorm(shape, elementwise_affine=False), nn.GELU())

    return nn.Sequential(
        nn.Unflatten(1, (3, 32, 32)),
        conv(3, 1, 1), norm(1, 32, 32),
        conv(1, 4, 2), norm(4, 16, 16),
        conv(4, 16, 2), norm(16, 8, 8),
        conv(16, 64, 2), norm(64, 4, 4),
        conv(64, 256, 2), norm(256, 2, 2),
        conv(256, 256, 1),
        nn.Flatten(),
        nn.Linear(1024, classes),
    )  # fmt: skip


def s_mlp(classes: int = 10) -> nn.Module:
    layers: list[nn.Module] = []
    for m_in in (3072, 1024, 1024, 1024, 1024):
        layers += [nn.Linear(m_in, 1024), nn.LayerNorm(1024, elementwise_affine=False), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(1024, 1024), nn.Linear(1024, classes))


class Mixer(nn.Module):
    """After the original MLP-Mixer: a convolution embeds the patches, tokens are mixed on the transposed table."""

    def __init__(self, classes: int = 10, residual: bool = True):
        super().__init__()
        self.residual = residual
        self.embed = nn.Conv2d(3, 128, kernel_size=8, stride=8)
        self.blocks = nn.ModuleList()
        for _ in range(2):
            token = nn.ModuleList([nn.Linear(16, 16), nn.Linear(16, 16)])
            channel = nn.ModuleList([nn.Linear(128, 128), nn.Linear(128, 128)])
            self.blocks += [token, channel]
        self.head = nn.Linear(128, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x.reshape(-1, 3, 32, 32)).flatten(2).transpose(1, 2)  # (N, S, C)
        for index, (first, second) in enumerate(self.blocks):
            h = nn.functional.layer_norm(x, (128,))
            h = h.transpose(1, 2) if index % 2 == 0 else h
            h = second(nn.functional.gelu(first(h)))
            h = h.transpose(1, 2) if index % 2 == 0 else h
            x = x + h if self.residual else h
        return self.head(nn.functional.layer_norm(x, (128,)).mean(1))


class Block(nn.Module):
    """ResNet's, with LayerNorm over everything for BatchNorm: the shortcut has the block's stride."""

    def __init__(self, c_in: int, c_out: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride=stride, padding=1)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, padding=1)
        self.shortcut = nn.Conv2d(c_in, c_out, 1, stride=stride) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.conv1(x)
        h = self.conv2(nn.functional.layer_norm(h, h.shape[1:]).relu())
        return (nn.functional.layer_norm(h, h.shape[1:]) + self.shortcut(x)).relu()


def res_net(classes: int = 10) -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (3, 32, 32)),
        nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.LayerNorm((4, 16, 16), elementwise_affine=False), nn.ReLU(),
        Block(4, 4, 1), Block(4, 16, 2), Block(16, 64, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes),
    )  # fmt: skip


def load(module: nn.Module, parameters: dict[str, torch.Tensor]) -> None:
    with torch.no_grad():
        for theirs, ours in zip(module.parameters(), parameters.values(), strict=True):
            theirs.copy_(ours.reshape(theirs.shape))
