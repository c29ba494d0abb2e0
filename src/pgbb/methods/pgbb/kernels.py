"""The generator's step in seven kernels, for a GPU, where plain array operations spend it on starting many small ones.

`pgbb.methods.pgbb.training` has the same step in plain array operations, to read and to compare with. Nothing here sees
records. `python benchmarks/device.py kernels` on one H200: a step of 29.9 µs against 48.0 µs in plain operations at
n = 10,000, K = 1, and 31 µs less at n = 1.94 million, K = 5, where a step of the natality study takes 39 µs in all.

A layer is one array (4, rows, columns), updated in place: its values, the two moments of Adam, and the average.
Its rows belong to the hidden units before it (none before layer 0), to the inputs, and to the bias: a constant
input of 1 follows the others. Zeros fill rows up to eights, columns and K up to powers of two; their gradients are
zero, and so they stay. Activations have the inputs behind them, as the next layer reads them: (K, rows).

Forward, a program has some columns of a layer; backward, some rows. No program of a kernel reads what another
one writes: so layer 3, which all of `_backward_2` read, is updated with layer 1.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.experimental import pallas as pl

from pgbb._numerics.compiled import power_of_two

WIDTH, DEPTH = 256, 3
MOST_INPUTS, MOST_OUTPUTS, MOST_DRAWS = 128, 64, 16
COLUMNS, ALONE = 64, 8  # columns of a hidden layer in a forward program; the second for one network on a device
ROWS = 8  # rows of a layer in a backward program
PART = 128  # columns that a warp reads at once
WARPS, ALONE_WARPS = 8, 16  # warps of a program; the second in the forward pass of one network on a device
FEWEST, PIECE = 4, 16  # least number of outputs, with zeros; most rows or outputs that are read at once
_FIRST, _SECOND, _TINY = 0.9, 0.999, 1e-8  # constants of Adam, as in `optax.adam`

_Piece = tuple[Any, pl.BlockSpec]  # an array or its shape, and the part of it that a program sees


@dataclass(frozen=True)
class Layout:
    """Sizes that the kernels are written for: K rows of inputs, and d outputs.

    `columns` of a hidden layer are those of a program of the forward pass: few spread one network over a device. The
    output is `clipped` to the box, or nears its sides smoothly; see `generator.forward`.
    """

    draws: int
    inputs: int
    outputs: int
    columns: int
    clipped: bool = False

    @property
    def filled_draws(self) -> int:
        """K, and zeros: a power of two."""
        return power_of_two(self.draws)

    @property
    def filled_inputs(self) -> int:
        """Inputs, the constant, and zeros: a multiple of `ROWS`."""
        return -(-(self.inputs + 1) // ROWS) * ROWS

    @property
    def filled_outputs(self) -> int:
        """Outputs, and zeros: a power of two."""
        return max(FEWEST, power_of_two(self.outputs))

    @property
    def last_columns(self) -> int:
        """Columns of the last layer in a program."""
        return min(PIECE, self.filled_outputs)

    @property
    def rows(self) -> int:
        """Rows of every layer but the first."""
        return WIDTH + self.filled_inputs

    def pack(self, state: Any) -> Any:
        """The four layers, from parameters, the optimiser's memory and the average."""
        params, (adam, _), average = state
        trees = (params, adam.mu, adam.nu, average)
        return tuple(jnp.stack([self._packed(tree, i) for tree in trees]) for i in range(DEPTH + 1))

    def unpack(self, layers: Any, steps: int) -> Any:
        """What `pack` would be given after so many steps."""
        trees: list[dict[str, Any]] = [{}, {}, {}, {}]
        for i, layer in enumerate(layers):
            bias, columns = self.inputs + (WIDTH if i else 0), WIDTH if i < DEPTH else self.outputs
            for part, tree in enumerate(trees):
                tree[f"kernel{i}"] = layer[part, :bias, :columns]
                tree[f"bias{i}"] = layer[part, bias, :columns]
        params, first, second, average = trees
        adam = optax.ScaleByAdamState(jnp.asarray(steps, jnp.int32), first, second)
        return params, (adam, optax.ScaleByScheduleState(jnp.asarray(steps, jnp.int32))), average

    def _packed(self, tree: dict[str, Any], i: int) -> Any:
        found = jnp.concatenate([tree[f"kernel{i}"], tree[f"bias{i}"][None]])
        rows, columns = self.rows if i else self.filled_inputs, WIDTH if i < DEPTH else self.filled_outputs
        return jnp.pad(found, ((0, rows - found.shape[0]), (0, columns - found.shape[1])))


def find_layout(
    draws: int, inputs: int, outputs: int, width: int, depth: int, *, alone: bool, clipped: bool = False
) -> Layout | None:
    """None where the sizes are not those that the kernels are written for; `alone` without others side by side."""
    layout = Layout(draws, inputs, outputs, ALONE if alone else COLUMNS, clipped)
    small = draws <= MOST_DRAWS and layout.filled_inputs <= MOST_INPUTS and layout.filled_outputs <= MOST_OUTPUTS
    return layout if small and (width, depth) == (WIDTH, DEPTH) else None


def network(
    layout: Layout,
    schedule: Callable[[Any], Any],
    box: Any,
    share: Callable[[Any], Any],
    *,
    interpret: bool = False,
) -> Any:
    """Both passes, `forward(layers, inputs, t)` and `backward(layers, memo, answers, t)`, on layers that are packed.

    The rows of `box` are centre, radius and reach of θ; see `generator.forward`.
    """
    edges = jnp.pad(box, ((0, 0), (0, layout.filled_outputs - layout.outputs)), constant_values=1.0)

    def forward(layers: Any, inputs: Any, t: Any) -> tuple[Any, Any]:
        first, second = (-1 / jnp.expm1((t + 1) * math.log(decay)) for decay in (_FIRST, _SECOND))
        scalars = jnp.stack([schedule(t) * first, second, share(t)])
        return _forward(layout, layers, _given(layout, inputs, scalars), edges, interpret)

    def backward(layers: Any, memo: Any, answers: Any, t: Any) -> Any:
        return _backward(layout, layers, memo, answers, interpret)

    return forward, backward


def _given(layout: Layout, inputs: Any, scalars: Any) -> Any:
    """What a step is given, in one array, which one kernel makes: K rows of inputs, zeros, and a row of scalars."""
    size = layout.filled_inputs
    filled = jnp.pad(inputs, ((0, 0), (0, size - layout.inputs)))
    filled = jnp.where(jnp.arange(size) == layout.inputs, 1.0, filled)
    filled = jnp.pad(filled, ((0, layout.filled_draws - layout.draws), (0, 0)))
    return jnp.concatenate([filled, jnp.pad(scalars, (0, size - len(scalars)))[None]])


def _forward(layout: Layout, layers: Any, given: Any, box: Any, interpret: bool) -> tuple[Any, Any]:
    """θ, and what the backward pass needs."""
    k, rows = layout.filled_draws, layout.rows
    warps = ALONE_WARPS if layout.columns == ALONE else WARPS
    call = partial(_call, layout, warps=warps, interpret=interpret)
    units, programs, before = (_shape(k, rows), _WHOLE), WIDTH // layout.columns, given
    hidden = []
    for layer in layers[:DEPTH]:
        mine = _columns(layer.shape[1], layout.columns)
        (before,) = call(_forward_hidden, programs, [(given, _WHOLE), (before, _WHOLE), (layer, mine)], [units])
        hidden.append(before)
    theta, slope = call(
        _forward_last,
        layout.filled_outputs // layout.last_columns,
        [(before, _WHOLE), (layers[3], _columns(rows, layout.last_columns)), (box, _WHOLE)],
        [(_shape(layout.draws, layout.outputs), _WHOLE), (_shape(k, layout.filled_outputs), _WHOLE)],
    )
    return theta, (given, *hidden, slope)


def _backward(layout: Layout, layers: Any, memo: Any, answers: Any, interpret: bool) -> Any:
    """The layers after a step of Adam."""
    given, hidden1, hidden2, hidden3, slope = memo
    layer0, layer1, layer2, layer3 = layers
    call = partial(_call, layout, warps=WARPS, interpret=interpret)
    units, hidden, last = _units(layout.filled_draws), _rows(WIDTH), _rows(layout.filled_outputs)
    back = (_shape(layout.filled_draws, layout.rows), units)
    always = [(given, _WHOLE), (slope, _WHOLE), (answers, _WHOLE)]
    layer2, back1 = call(
        _backward_2,
        layout.rows // ROWS,
        [*always, (hidden3, _WHOLE), (layer3, _values(layout.rows, layout.filled_outputs)), (hidden2, units),
         (layer2, hidden)],
        [(layer2, hidden), back],
        updated={6: 0},
    )  # fmt: skip
    layer1, layer3, back0 = call(
        _backward_1_3,
        layout.rows // ROWS,
        [*always, (back1, _WHOLE), (hidden1, units), (hidden3, units), (layer1, hidden), (layer3, last)],
        [(layer1, hidden), (layer3, last), back],
        updated={6: 0, 7: 1},
    )
    (layer0,) = call(
        _backward_0,
        layout.filled_inputs // ROWS,
        [(given, _WHOLE), (back0, _WHOLE), (given, _units(layout.filled_draws + 1)), (layer0, hidden)],
        [(layer0, hidden)],
        updated={3: 0},
    )
    return layer0, layer1, layer2, layer3


def _forward_hidden(layout: Layout, given: Any, before: Any, layer: Any, after: Any) -> None:
    """Some columns of a hidden layer; behind its units, the inputs."""
    after[:, _mine(layout.columns)] = jnp.maximum(_sums(layout, before, layer), 0.0)

    @pl.when(pl.program_id(0) == 0)
    def _() -> None:
        for i in range(0, layout.filled_inputs, ROWS):
            after[:, WIDTH + i : WIDTH + i + ROWS] = given[: layout.filled_draws, i : i + ROWS]


def _forward_last(layout: Layout, hidden3: Any, layer3: Any, box: Any, theta: Any, slope: Any) -> None:
    """Some coordinates of θ, and their derivatives by z, over K."""
    from jax.experimental.pallas import triton

    mine, shape = _mine(layout.last_columns), (layout.filled_draws, layout.last_columns)
    k, column = (jax.lax.broadcasted_iota(jnp.int32, shape, i) for i in range(2))
    column += pl.program_id(0) * layout.last_columns
    center, radius, reach = (box[i, mine][None, :] for i in range(3))
    z = _sums(layout, hidden3, layer3) / reach
    bounded = jnp.clip(z, -1.0, 1.0) if layout.clipped else jnp.tanh(z)
    inside = (k < layout.draws) & (column < layout.outputs)
    triton.store(theta.at[k, column], center + radius * bounded, mask=inside)
    steep = jnp.ones_like(z) if layout.clipped else 1 - bounded**2
    slope[:, mine] = radius * steep / (reach * layout.draws)


def _backward_2(
    layout: Layout, given: Any, slope: Any, answers: Any, hidden3: Any, layer3: Any, hidden2: Any, _: Any,
    layer2: Any, back1: Any,
) -> None:  # fmt: skip
    """Some rows of layer 2, and the derivatives by the units before them."""
    old, draws = _read(layout, given, hidden2, layer2), range(layout.draws)
    size = layout.last_columns
    pieces = [slice(i, i + size) for i in range(0, layout.filled_outputs, size)]
    out = [[_out(layout, slope, answers, k, piece) for piece in pieces] for k in draws]
    back = []
    for part in _parts(WIDTH):
        active, total = [hidden3[k, part] > 0 for k in draws], [jnp.zeros((PART, size), jnp.float32)] * layout.draws
        for i, piece in enumerate(pieces):
            weights = layer3[0, part, piece]
            total = [total[k] + weights * out[k][i] for k in draws]
        back.append([jnp.where(active[k], jnp.sum(total[k], axis=1), 0.0)[None, :] for k in draws])
    _update(layout, layer2, old, back, back1)


def _backward_1_3(
    layout: Layout, given: Any, slope: Any, answers: Any, back1: Any, hidden1: Any, hidden3: Any, _1: Any, _3: Any,
    layer1: Any, layer3: Any, back0: Any,
) -> None:  # fmt: skip
    """Some rows of layers 1 and 3, and the derivatives by the units before layer 1."""
    last = slice(0, layout.filled_outputs)
    old1, back = _read(layout, given, hidden1, layer1), _spread(layout, back1)
    old3 = _read(layout, given, hidden3, layer3)
    out = [_out(layout, slope, answers, k, last) for k in range(layout.draws)]
    _update(layout, layer1, old1, back, back0)
    _update(layout, layer3, old3, [out])


def _backward_0(layout: Layout, given: Any, back0: Any, inputs: Any, _: Any, layer0: Any) -> None:
    """Some rows of layer 0."""
    _update(layout, layer0, _read(layout, given, inputs, layer0), _spread(layout, back0))


def _sums(layout: Layout, before: Any, layer: Any) -> Any:
    """Σ_r before[k, r] · layer[r] for every k, by sums of products: K rows are too few for tensor cores.

    A sum across warps is slow, so there is only one, at the end; and one for the rows that are left.
    """
    _, rows, columns = layer.shape
    found = jnp.zeros((layout.filled_draws, columns), jnp.float32)
    for size, first, last in ((PIECE, 0, rows - rows % PIECE), (ROWS, rows - rows % PIECE, rows)):
        total = jnp.zeros((layout.filled_draws, size, columns), jnp.float32)
        for i in range(first, last, size):
            total += before[: layout.filled_draws, i : i + size][:, :, None] * layer[:, i : i + size, :]
        if first < last:
            found += jnp.sum(total, axis=1)
    return found


def _out(layout: Layout, slope: Any, answers: Any, k: int, piece: slice) -> Any:
    """Derivatives by z of the last layer, in a piece of its columns: (1, columns)."""
    from jax.experimental.pallas import triton

    column = piece.start + jax.lax.iota(jnp.int32, piece.stop - piece.start)
    return (triton.load(answers.at[k, column], mask=column < layout.outputs, other=0.0) * slope[k, piece])[None, :]


def _parts(columns: int) -> list[slice]:
    """Columns in parts: of each a warp has whole rows, and so sums them alone."""
    return [slice(i, min(i + PART, columns)) for i in range(0, columns, PART)]


def _spread(layout: Layout, back: Any) -> list[list[Any]]:
    """Derivatives for every part and k, read for every row anew: to share them would take longer."""
    column = jax.lax.broadcasted_iota(jnp.int32, (ROWS, PART), 1)
    return [[back[k, part.start + column] for k in range(layout.draws)] for part in _parts(WIDTH)]


def _read(layout: Layout, given: Any, before: Any, layer: Any) -> tuple[list[Any], list[Any], list[tuple[Any, ...]]]:
    """Scalars, the units before some rows of a layer, and parts of these; at the start, for memory is slow."""
    scalars, units = [given[layout.filled_draws, i] for i in range(3)], [before[k, :] for k in range(layout.draws)]
    return scalars, units, [tuple(layer[i, :, part] for i in range(3)) for part in _parts(layer.shape[2])]


def _update(layout: Layout, layer: Any, old: Any, back: list[list[Any]], back_before: Any | None = None) -> None:
    """A step of Adam for some rows of a layer, and the derivatives by the units before them.

    The average is left alone unless this iterate has a share in it.
    """
    (rate, correction, share), units, parts = old
    if back_before is not None:
        row, draw = (jax.lax.broadcasted_iota(jnp.int32, (ROWS, layout.filled_draws), i) for i in range(2))
        found = jnp.zeros(row.shape, jnp.float32)
        for k, unit in enumerate(units):
            total = jnp.sum(sum(values * b[k] for (values, _, _), b in zip(parts, back, strict=True)), axis=1)
            found = jnp.where((draw == k) & (unit > 0)[:, None], total[:, None], found)
        back_before[draw, row] = found
    for part, (values, first, second), b in zip(_parts(layer.shape[2]), parts, back, strict=True):
        gradient = sum(unit[:, None] * b_k for unit, b_k in zip(units, b, strict=True))
        first = _FIRST * first + (1 - _FIRST) * gradient
        second = _SECOND * second + (1 - _SECOND) * gradient * gradient
        values -= rate * first / (jnp.sqrt(correction * second) + _TINY)
        layer[0, :, part], layer[1, :, part], layer[2, :, part] = values, first, second

        @pl.when(share > 0)
        def _(part: slice = part, values: Any = values) -> None:
            layer[3, :, part] += share * (values - layer[3, :, part])


def _mine(size: int) -> Any:
    return pl.ds(pl.program_id(0) * size, size)


def _call(
    layout: Layout, kernel: Any, programs: int, inputs: Sequence[_Piece], outputs: Sequence[_Piece],
    *, warps: int, interpret: bool, updated: dict[int, int] | None = None,
) -> Any:  # fmt: skip
    from jax.experimental.pallas import triton

    call = pl.pallas_call(
        partial(kernel, layout),
        grid=(programs,),
        in_specs=[spec for _, spec in inputs],
        out_specs=[spec for _, spec in outputs],
        out_shape=[_shape(*array.shape) for array, _ in outputs],
        input_output_aliases=updated or {},
        compiler_params=triton.CompilerParams(num_warps=warps),
        interpret=interpret,
    )
    return call(*[array for array, _ in inputs])


def _shape(*sizes: int) -> Any:
    return jax.ShapeDtypeStruct(sizes, jnp.float32)  # type: ignore[no-untyped-call]


_WHOLE = pl.BlockSpec()


def _values(rows: int, columns: int) -> pl.BlockSpec:
    """The values of a layer."""
    return pl.BlockSpec((1, rows, columns), lambda i: (0, 0, 0))


def _columns(rows: int, columns: int) -> pl.BlockSpec:
    """The values of some columns of a layer."""
    return pl.BlockSpec((1, rows, columns), lambda i: (0, 0, i))


def _rows(columns: int) -> pl.BlockSpec:
    """Some rows of a layer."""
    return pl.BlockSpec((4, ROWS, columns), lambda i: (0, i, 0))


def _units(k: int) -> pl.BlockSpec:
    """The units before these rows."""
    return pl.BlockSpec((k, ROWS), lambda i: (0, i))
