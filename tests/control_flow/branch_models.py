"""Small models that branch on data or on sizes, each with inputs for every branch."""

from __future__ import annotations

import logging

import torch
import torch.nn.functional as F
from torch import nn

from tests.control_flow.branch_cases import ROWS, down, present, right, up

# ---- None among the outputs


@right(up(2, 4), torch.zeros(3, 4), reference=lambda o, i: present(o, i[0]))
class nothing_found(nn.Module):
    def forward(self, x):
        if not x.any():
            return None
        return x / x.max()


@right(up(2, 4), up(5, 4))
class never_returns_the_second(nn.Module):
    def __init__(self):
        super().__init__()
        self.wanted = False

    def forward(self, x):
        return {"kept": x * 2, "extra": x if self.wanted else None, "name": "fixed"}


# ---- if


@right(up(2, 4), down(2, 4), down(5, 4))
class leaves_early(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        if x.mean() < 0:
            return F.relu(x + 0.5)
        return self.inner(x)


@right(up(2, 4), up(7, 4), up(5, 4))
class long_batches_are_scaled(nn.Module):
    def forward(self, x):
        if x.size(0) >= 5:
            return x / x.size(0)
        return x * 2


@right(up(3, 4), down(2, 4), up(6, 4), reference=lambda o, i: (o[0], *present(o[1], i[0])))
class second_of_a_tuple(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        y = self.inner(x)
        extra = None
        if x.max() > 0:
            extra = torch.sigmoid(y)
        return y, extra


@right(up(5, 3), down(5, 3), up(2, 3), reference=lambda o, i: present(o, torch.zeros(0, 3)))
class rows_kept_if_any(nn.Module):
    def forward(self, x):
        chosen = x[:, 0] > 0.4
        if not torch.any(chosen):
            return None
        return x[chosen]


class _Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        if x.mean() > 0:
            return self.inner(x)
        return None


@right(up(2, 4), down(2, 4), down(3, 4))
class missing_inside(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = _Gate()

    def forward(self, x):
        gate = self.gate(x)
        return x - 1 if gate is None else x * gate


@right(up(2, 4), up(2, 4) * 9, down(2, 4), down(2, 4) * 9)
class four_ways(nn.Module):
    def forward(self, x):
        middle = x.mean()
        if middle > 3:
            return x - middle
        elif middle > 0:
            return x * 2
        elif middle > -3:
            return x.abs()
        return x / 9


@right(up(2, 4), down(2, 4), up(3, 4) * 20)
class ternary_and_not(nn.Module):
    def forward(self, x):
        y = x if not (x < 0).any() else -x
        return y.sqrt() if y.min() > 0 and y.max() < 9 else y


@right(up(4), down(4), dynamic=({0: "n"},))
class item_compared(nn.Module):
    def forward(self, x):
        first = x[0].item()
        if 0 < first < 2:
            return x * first
        return x - first


@right((up(2, 4), torch.tensor(True)), (up(3, 4), torch.tensor(False)), dynamic=(ROWS[0], None))
class flag_as_input(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x, wanted):
        if wanted:
            x = self.inner(x)
        return x + 1


@right(up(4, 4), down(4, 4), up(7, 4))
class other_shapes(nn.Module):
    def forward(self, x):
        return (x[1:] if x.sum() > 0 else x) * 3


@right(up(2, 4), down(2, 4))
class other_dtypes(nn.Module):
    def forward(self, x):
        return x * 2 if x.mean() > 0 else (x < -0.5).int()


@right(up(2, 4), down(2, 4))
class bool_results(nn.Module):
    def forward(self, x):
        return x > 0.5 if x.sum() > 0 else x < -0.5


@right(up(2, 4), down(2, 4))
class updated_in_place(nn.Module):
    def forward(self, x):
        y = x * 1
        if x.mean() < 0:
            y[:, 1] = 7
            y.add_(1)
        return y


@right(up(2, 4), up(5, 4))
class checks_first(nn.Module):
    def forward(self, x):
        if torch.isnan(x).any():
            raise ValueError("not a number")
        assert x.min() > -100, "too small"
        return x * 2


@right(up(2, 8), up(3, 20), up(2, 11), dynamic=({0: "rows", 1: "columns"},))
class at_most_ten(nn.Module):
    def forward(self, x):
        return x[:, : min(x.shape[1], 10)] + len(x)


@right((up(2, 8), torch.tensor([3, 5])), (up(2, 8), torch.tensor([2, 7])), dynamic=(ROWS[0], {0: "rows"}))
class longest_prefix(nn.Module):
    def forward(self, x, lengths):
        return x[:, : lengths.max()] + 1


@right((up(6, 4), torch.tensor([2, 4])), (up(6, 4), torch.tensor([5, 1])), dynamic=None)
class parts_of_given_sizes(nn.Module):
    def forward(self, x, sizes):
        first, second = torch.split(x, sizes.tolist())
        return first.mean(0) + second.mean(0)


@right(up(9), up(9) + 2, dynamic=None)
class list_of_items(nn.Module):
    def forward(self, x):
        return torch.Tensor([i for i in x]), torch.tensor([float(x.max()), x[0].item()])


@right(up(2, 6, 4), up(3, 9, 4), dynamic=({0: "rows", 1: "steps"},))
class set_in_an_empty_tensor(nn.Module):
    def forward(self, x):
        made = torch.Tensor(x.shape[0], x.shape[1])
        made[x[..., 0] > 0.7] = 1.0
        made[x[..., 0] <= 0.7] = -1.0
        return made * x.sum(-1) if x.sum() > 50 else made * 2


@right(torch.eye(3)[:1], torch.eye(3)[1:2], torch.eye(3)[2:])
class chosen_expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(3, 2) for _ in range(3))
        self.scales = [1.0, 4.0, 9.0]

    def forward(self, x):
        k = int(x.mean(0).argmax())
        return self.experts[k](x) * self.scales[k]


@right(up(2, 6, 4), up(2, 9, 4), dynamic=({0: "rows", 1: "steps"},))
class table_built_when_needed(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = None

    def forward(self, x):
        if self.table is None or len(self.table) != x.shape[1]:
            self.table = torch.arange(x.shape[1]).float()[:, None]
        return x + self.table


class _Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", None, persistent=False)

    def forward(self, x):
        self.table = torch.arange(x.shape[1])[:, None] * 2.0
        return x + self.table


@right(up(2, 6, 4), down(2, 11, 4), dynamic=({0: "rows", 1: "steps"},))
class buffer_made_on_each_path(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = _Table()

    def forward(self, x):
        return self.inner(x * 2 if x.sum() > 0 else x)


class sum_and_maybe_another(nn.Module):
    def forward(self, x):
        return (x * 2, None) if x.sum() > 0 else (-x, x + 5)


@right(up(2, 4), down(3, 4))
class branch_of_a_module_then_an_update_in_place(nn.Module):
    """The caller makes the inner module's decision, and updates in place before it makes one of its own."""

    def __init__(self):
        super().__init__()
        self.inner = sum_and_maybe_another()

    def forward(self, x):
        y, other = self.inner(x)
        y = y.clone()
        y.add_(1)
        return y if other is None else y + other


@right(up(2, 4), up(3, 4))
class exception_caught(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 4)

    def forward(self, x):
        try:
            return self.inner(x)
        except RuntimeError:
            return self.inner(torch.cat([x, x], -1))


@right(up(3, 4) * 9, up(3, 4) * 0.1, up(2, 4))
class stops_when_sure(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
            if x.max() > 1:
                break
        return x + 1


@right(up(2, 6), up(2, 12), up(2, 3), dynamic=({1: "n"},))
class scaled_by_a_share_of_the_size(nn.Module):
    """A float made of a size, and the lesser of two, inside an If."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = x.shape[1]
        if n > 8:
            return x[:, : min(n, 10)] / (10.0 * (2.0 * n / 8 - 1) ** 2)
        return x * (n / 3)


@right(up(2, 6), up(2, 5), up(2, 12), dynamic=({1: "n"},))
class patched_inside_an_if(nn.Module):
    """Functions without an ONNX form, one of which makes a tensor of a number."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] % 2 == 0:
            return x.median(1).values + x.quantile(0.3, 1)
        return x.mean(1)


# The short one last: eager stays as that leaves it.
@right(up(2, 9), up(2, 12), up(2, 4), dynamic=({1: "n"},))
class exchanged_layer(nn.Module):
    """A short input exchanges a layer for one with another signature, as BigBird's sparse attention does."""

    def __init__(self):
        super().__init__()
        self.kind, self.layer = "two", nn.Bilinear(1, 1, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "two" and x.shape[1] <= 6:
            self.kind, self.layer = "one", nn.Softmax(1)
        x = x[..., None]
        return self.layer(x) if self.kind == "one" else self.layer(x, x).sum(2, keepdim=True)


@right(
    up(2, 3, 8, 12), up(1, 3, 12, 8), up(3, 3, 5, 30), up(1, 3, 7, 7), dynamic=({0: "batch", 2: "rows", 3: "columns"},)
)
class shorter_side_resized(nn.Module):
    """torchvision's resize() to one number: both sizes differ between the sides."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        rows, columns = image.shape[2:]
        size = (int(6 * rows / columns), 6) if columns <= rows else (6, int(6 * columns / rows))
        if max(size) > 20:
            size = (size[0], 20)
        return nn.functional.interpolate(image, size=size, mode="bilinear", antialias=True)


@right(up(2, 4), down(2, 4), up(3, 4) * 20)
class asks_again(nn.Module):
    """A condition that is asked again on a path has its answer: of 256 combinations there are three."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = x.sum()
        parts = [x[:, place] + place if total > 0 else x[:, place] - place for place in range(4)]
        parts += [part * 2 if total > 9 else -part for part in parts]
        return torch.stack(parts, 1)


@right(
    up(2, 1, 12, 14), up(2, 1, 4, 14), up(3, 1, 14, 3), up(1, 1, 2, 2), up(1, 1, 5, 5),
    dynamic=({0: "batch", 2: "rows", 3: "columns"},),
)  # fmt: skip
class smoothed_where_the_window_fits(nn.Module):
    """The convolution of one side fails at the sizes of the other: it may run in its branch alone."""

    def __init__(self) -> None:
        super().__init__()
        self.window = torch.ones(1, 1, 5, 1) / 5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for axis, size in enumerate(x.shape[2:]):
            if size >= 5:
                x = nn.functional.conv2d(x, self.window.transpose(2, 3) if axis else self.window)
            else:
                logging.getLogger(__name__).debug(f"too small at axis {axis}: {x.shape}")
        return x.mean(-1)


@right(
    (up(2, 1, 12), up(2, 1, 12)), (up(2, 1, 4), up(2, 1, 4)), (up(3, 1, 5), up(3, 1, 5)),
    dynamic=({0: "batch", 2: "columns"}, {0: "rows", 2: "width"}),
)  # fmt: skip
class equal_sizes_have_one_side(nn.Module):
    """Each of three sizes is compared, and all are the same: of eight combinations six fit no input."""

    def __init__(self) -> None:
        super().__init__()
        self.window = torch.ones(1, 1, 5) / 5

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if x.shape != y.shape:
            raise ValueError("two images of one size")
        return self.smooth(x) * self.smooth(y) - self.smooth(x * y)

    def smooth(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.conv1d(x, self.window) if x.shape[2] >= 5 else x


@right(up(6), down(6), up(1), up(9) - 0.7, dynamic=({0: "n"},))
class chosen_numbers_on_one_side(nn.Module):
    """A side has a size from data, which the next path must not lose; sizes are asked, too."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2 if len(x) > 1 else x
        if x.sum() > 0:
            y = y.clone()
            y[x > 0.1] = x[x > 0.1] * 3
        return y + 1 if len(x) > 7 else y
