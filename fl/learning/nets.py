"""A small convolutional network for images, to begin with: every layer treats each sample alone."""

import torch
from torch import nn


class SmallCNN(nn.Module):
    """Two 3 x 3 convolutions, each with GroupNorm, ReLU and 2 x 2 pooling; then a mean over places and a linear layer.

    With channels = 3, classes = 10 and width = 16 it has d = 5,514 parameters; images are at least 4 x 4.
    """

    def __init__(self, channels: int, classes: int, width: int = 16) -> None:
        """width: channels after the first convolution, a multiple of 4; the second doubles them."""
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, width, 3, padding=1),
            nn.GroupNorm(4, width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.GroupNorm(4, 2 * width),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.last = nn.Linear(2 * width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs (n, classes) of images (n, channels, height, width)."""
        outputs: torch.Tensor = self.last(self.layers(x).mean(dim=(2, 3)))
        return outputs
