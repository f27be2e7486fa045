# SPDX-License-Identifier: Apache-2.0
"""torch.compile with models of images and formulas: convolutions, pooling, padding, resampling, arcs, against eager PyTorch."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from conftest import Daemon

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

Function = Callable[..., Any]


pytestmark = pytest.mark.usefixtures("fresh")


def assert_close(function: Function, *args: Any, tolerance: float = 1e-5) -> None:
    want = function(*args)
    got = torch.compile(function, backend="npugraph", fullgraph=True)(*args)
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)


class Residual(nn.Module):
    """A block of ResNet's kind."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.a = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.b = nn.Conv2d(out, out, 3, padding=1, groups=2)
        self.norms = nn.ModuleList(nn.BatchNorm2d(out) for _ in range(2))
        self.short = nn.Conv2d(channels, out, 1, stride)

    def forward(self, x: Any) -> Any:
        y = F.relu(self.norms[0](self.a(x)))
        return F.relu(self.norms[1](self.b(y)) + self.short(x))


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 7, 2, 3)
        self.blocks = nn.Sequential(Residual(8, 8, 1), Residual(8, 16, 2))
        self.head = nn.Linear(16, 10)

    def forward(self, x: Any) -> Any:
        y = self.blocks(F.max_pool2d(F.relu(self.stem(x)), 3, 2, 1))
        return self.head(F.adaptive_avg_pool2d(y, 1).flatten(1))


class Segmenter(nn.Module):
    """Down and up again, as U-Net, with group norms."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, 2, 1)
        self.up = nn.ConvTranspose2d(8, 4, 4, 2, 1)
        self.norm = nn.GroupNorm(2, 4)
        self.last = nn.Conv2d(7, 2, 1)

    def forward(self, x: Any) -> Any:
        y = F.silu(self.norm(self.up(F.gelu(self.down(F.pad(x, (1, 1, 1, 1), mode="reflect"))))))
        return F.interpolate(self.last(torch.cat([y[..., 1:-1, 1:-1], x], 1)), scale_factor=2, mode="bilinear")


@pytest.mark.parametrize("model", [Classifier, Segmenter])
def test_models_of_images(model: Function) -> None:
    network = model().eval()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    assert_close(network, torch.randn(2, 3, 32, 32), tolerance=1e-4)


def test_batches_may_be_dynamic(daemon: Daemon) -> None:
    network = Classifier().eval()
    compiled = torch.compile(network, backend="npugraph", fullgraph=True)
    for batch in (2, 3, 5):
        images = torch.randn(batch, 3, 32, 32)
        torch._dynamo.mark_dynamic(images, 0)
        torch.testing.assert_close(compiled(images), network(images), rtol=1e-4, atol=1e-4)


IMAGES: dict[str, Function] = {
    "conv1d": lambda x: F.conv1d(x[0], torch.ones(6, 8, 5), stride=2, padding=3, dilation=2),
    "conv3d": lambda x: F.conv3d(x[None], torch.ones(2, 2, 1, 2, 3), torch.ones(2)),
    "depthwise": lambda x: F.conv2d(x, torch.linspace(-1, 1, 27).reshape(3, 1, 3, 3), padding="same", groups=3),
    "unbatched": lambda x: F.conv2d(x[0], torch.ones(2, 3, 2, 2)),
    "transposed": lambda x: F.conv_transpose2d(x, torch.linspace(-1, 1, 72).reshape(3, 4, 2, 3), stride=(3, 1), padding=1,
                                               output_padding=(2, 0), dilation=(1, 2)),
    "max_pool2d": lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True),
    "max_pool1d": lambda x: F.max_pool1d(x[0], 2, dilation=2),
    "avg_pool2d": lambda x: F.avg_pool2d(x, (3, 2), (2, 3), (1, 0), True, False),
    "avg_pool_with_divisor": lambda x: F.avg_pool2d(x, 2, divisor_override=3),
    "adaptive": lambda x: (F.adaptive_avg_pool2d(x, (3, 5)), F.adaptive_avg_pool1d(x[0], 4)),
    "pads": lambda x: (F.pad(x[0], (2, 1), mode="reflect"), F.pad(x, (1, 0, 2, 3), mode="replicate"), F.pad(x, (-1, 2, 1, -3))),
    "nearest": lambda x: (F.interpolate(x, size=(5, 17)), F.interpolate(x, scale_factor=1.7)),
    "bilinear": lambda x: (F.interpolate(x, size=(5, 17), mode="bilinear", align_corners=True),
                           F.interpolate(x, scale_factor=(0.6, 2.5), mode="bilinear")),
    "fold": lambda x: F.fold(F.unfold(x, 3, padding=1, stride=2), (8, 11), 3, padding=1, stride=2),
    "pixel_shuffle": lambda x: F.pixel_unshuffle(F.pixel_shuffle(x.repeat(1, 4, 1, 1), 2), 2),
    "grid_sample": lambda x: F.grid_sample(x, torch.linspace(-1.2, 1.2, 80).reshape(2, 4, 5, 2), padding_mode="reflection",
                                           align_corners=False),
    "diagonal": lambda x: (x.diagonal(1, 2, 3), torch.diag_embed(x[0, 0]), x[0, 0].trace()),
    "as_strided": lambda x: x.as_strided((2, 3, 4), (5, 1, 7), 11) + 0,
    "distances": lambda x: (torch.cdist(x[0], x[1]), torch.cdist(x[0], x[1], 1.0), F.pdist(x[0, 0])),
}


@pytest.mark.parametrize("name", IMAGES)
def test_images(name: str) -> None:
    assert_close(IMAGES[name], torch.randn(2, 3, 8, 11), tolerance=1e-4)


SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 0.5, -0.5, 1e-8, -3e-5, 40.0, -89.0, 3e38, 1.5, 88.9, 2.4142]


@pytest.mark.parametrize("name", ["sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "log2", "log10", "log1p",
                                  "expm1"])
def test_formulas(name: str) -> None:
    """Within 8 units in the last place of the result in f64, at values all over the range; special ones with their signs."""
    x = torch.cat([torch.tensor(SPECIAL), torch.linspace(-1, 1, 4001), torch.randn(4000) * 20, torch.logspace(-30, 30, 4001)])
    got = torch.compile(getattr(torch, name), backend="npugraph", fullgraph=True)(x)
    exact = getattr(torch, name)(x.double())
    want = exact.float()
    assert torch.equal(got.isnan(), want.isnan())
    same = (got == want) | want.isnan()
    unit = torch.maximum(want.abs() * 2**-23, torch.tensor(2.0**-126))
    error = torch.where(same, 0, (got.double() - exact).abs() / unit)
    assert error.max() <= 8, (x[error.argmax()], got[error.argmax()], want[error.argmax()])
    zeros = want == 0
    assert torch.equal(got[zeros].signbit(), want[zeros].signbit())


def test_angles() -> None:
    values = torch.tensor([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 3e-9, -7.5])
    y, x = (v.flatten() for v in torch.meshgrid(values, values, indexing="ij"))
    got = torch.compile(torch.atan2, backend="npugraph", fullgraph=True)(y, x)
    want = torch.atan2(y, x)
    torch.testing.assert_close(got, want, rtol=1e-6, atol=0, equal_nan=True)
    assert torch.equal(got.signbit()[~want.isnan()], want.signbit()[~want.isnan()])
