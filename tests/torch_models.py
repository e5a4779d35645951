"""Small models of other people, as a user's file would define them."""

import torch
from torch import nn


def batchnorm(classes=3, channels=4, dropout=0.2):
    """A residual network with BatchNorm and dropout, without biases where a norm follows."""
    return _Residual(classes, channels, dropout)


class _Residual(nn.Module):
    def __init__(self, classes, channels, dropout):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(1, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.conv2, self.norm2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.down = nn.Conv2d(channels, 2 * channels, 3, stride=2)
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(2 * channels * 9, classes)

    def forward(self, x):
        x = torch.relu(self.norm1(self.conv1(x)))
        x = torch.relu(x + self.norm2(self.conv2(x)))
        return self.head(self.dropout(self.down(x).flatten(1)))


def normed(classes=3):
    """A convolution whose weight is made of two other parameters."""
    conv = nn.utils.parametrizations.weight_norm(nn.Conv2d(1, 2, 3))
    return nn.Sequential(conv, nn.Flatten(), nn.Linear(72, classes))


def vit(image=(1, 8, 8), num_classes=3):
    """A vision transformer: patches, torch's own encoder layers, a positional table that is not saved."""
    return _ViT(image, num_classes)


class _ViT(nn.Module):
    def __init__(self, image, classes, dim=8, patch=4):
        super().__init__()
        channels, height, width = image
        self.embed = nn.Conv2d(channels, dim, patch, patch)
        tokens = (height // patch) * (width // patch)
        self.register_buffer("places", torch.linspace(-1, 1, tokens * dim).view(tokens, dim), persistent=False)
        layer = nn.TransformerEncoderLayer(dim, 2, 16, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        tokens = self.embed(x).flatten(2).transpose(1, 2) + self.places
        return self.head(self.encoder(tokens).mean(1))


def cnn(image=(1, 8, 8), classes=3):
    """imlp's own network of three layers with 64 outputs each, as a user would write it."""
    return _CNN(image, classes)


class _CNN(nn.Module):
    def __init__(self, image, classes):
        super().__init__()
        channels, height, _ = image
        for n, stride in enumerate((1, 2, 2), start=1):
            height = height // stride
            width = 64 // height**2
            self.add_module(f"conv{n}", nn.Conv2d(channels, width, 3, stride, padding=1))
            channels = width
        self.head = nn.Linear(64, classes)

    def forward(self, x):
        for conv in (self.conv1, self.conv2):
            x = conv(input=x)  # by its name, as some do
            x = nn.functional.gelu(nn.functional.layer_norm(x, x.shape[1:]))
        return self.head(self.conv3(x).flatten(1))


def pooled(classes=3):
    """A convolution and a pooling, which has nothing to train."""
    layers = nn.Conv2d(1, 3, 3, padding=1, padding_mode="circular"), nn.AvgPool2d(2), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(48, classes))
