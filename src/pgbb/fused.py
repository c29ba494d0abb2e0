"""The generator's step in six kernels, for a GPU, where plain array operations spend it on starting many small ones.

`pgbb.training` has the same step in plain array operations, to read and to compare with. Nothing here sees records.

A layer is one array (4, rows, columns), updated in place: its values, the two moments of Adam, and the average.
Its rows belong to the hidden units before it (none before layer 0), to the inputs, and to the bias: a constant
input of 1 follows the others. Zeros fill rows, columns and K up to powers of two; their gradients are zero, and so
they stay. Activations have the inputs behind them, as the next layer reads them: (K, rows).

Forward, a program has some columns of a layer; backward, some rows. No program of a kernel reads what another
one writes: so layer 3, which all of `_backward_2` read, is updated with layer 1.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.experimental import pallas as pl

from pgbb.private.lots import power_of_two

__all__ = ["Layout", "find_layout", "network"]

WIDTH, DEPTH = 256, 3
MOST_INPUTS, MOST_OUTPUTS, MOST_DRAWS = 128, 64, 16
COLUMNS, LAST_COLUMNS = 32, 16  # of a hidden layer and of the last, in a program of the forward pass
ROWS = 8  # of a layer, in a program of the backward pass; at most `FEWEST`
PART = 128  # columns that a warp reads at once
CELLS = 2048  # of layer 0, K times, that a program reads at once
FORWARD_WARPS, BACKWARD_WARPS = 16, 8
FEWEST = 16  # inputs or outputs, with their zeros
_FIRST, _SECOND, _TINY = 0.9, 0.999, 1e-8  # of Adam, as `optax.adam` has them

_Piece = tuple[Any, pl.BlockSpec]  # an array or its shape, and the part of it that a program sees


@dataclass(frozen=True)
class Layout:
    """Sizes that the kernels are written for: K rows of inputs, and d outputs."""

    draws: int
    inputs: int
    outputs: int

    @property
    def filled_draws(self) -> int:
        """K, and zeros: a power of two."""
        return power_of_two(self.draws)

    @property
    def filled_inputs(self) -> int:
        """Inputs, the constant, and zeros."""
        return _filled(self.inputs + 1)

    @property
    def filled_outputs(self) -> int:
        """Outputs, and zeros."""
        return _filled(self.outputs)

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


def find_layout(draws: int, inputs: int, outputs: int, width: int, depth: int) -> Layout | None:
    """None where the sizes are not those that the kernels are written for."""
    layout = Layout(draws, inputs, outputs)
    small = draws <= MOST_DRAWS and layout.filled_inputs <= MOST_INPUTS and layout.filled_outputs <= MOST_OUTPUTS
    return layout if small and (width, depth) == (WIDTH, DEPTH) else None


def _filled(size: int) -> int:
    return max(FEWEST, power_of_two(size))


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
        first, second = (1 / (1 - decay ** (t + 1)) for decay in (_FIRST, _SECOND))
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
    call = partial(_call, layout, warps=FORWARD_WARPS, interpret=interpret)
    units = (_shape(k, rows), _WHOLE)
    hidden1, hidden2 = call(
        _forward_0_1,
        WIDTH // COLUMNS,
        [(given, _WHOLE), (layers[0], _values(layout.filled_inputs, WIDTH)), (layers[1], _columns(rows, COLUMNS))],
        [units, units],
    )
    (hidden3,) = call(_forward_2, WIDTH // COLUMNS, [(hidden2, _WHOLE), (layers[2], _columns(rows, COLUMNS))], [units])
    theta, slope = call(
        _forward_3,
        layout.filled_outputs // LAST_COLUMNS,
        [(hidden3, _WHOLE), (layers[3], _columns(rows, LAST_COLUMNS)), (box, _WHOLE)],
        [(_shape(layout.draws, layout.outputs), _WHOLE), (_shape(k, layout.filled_outputs), _WHOLE)],
    )
    return theta, (given, hidden1, hidden2, hidden3, slope)


def _backward(layout: Layout, layers: Any, memo: Any, answers: Any, interpret: bool) -> Any:
    """The layers after a step of Adam."""
    given, hidden1, hidden2, hidden3, slope = memo
    layer0, layer1, layer2, layer3 = layers
    call = partial(_call, layout, warps=BACKWARD_WARPS, interpret=interpret)
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


def _forward_0_1(layout: Layout, given: Any, layer0: Any, layer1: Any, hidden1: Any, hidden2: Any) -> None:
    """Layer 0 in every program, and some columns of layer 1."""
    weights = layer1[:, :WIDTH, :]  # early, for memory is slow
    shape = (layout.filled_draws, max(CELLS // (layout.filled_draws * WIDTH), 1), WIDTH)
    k, row, column = (jax.lax.broadcasted_iota(jnp.int32, shape, i) for i in range(3))
    hidden = jnp.zeros(shape, jnp.float32)
    for i in range(0, layout.filled_inputs, shape[1]):  # read for every k anew: to share it would take longer
        hidden += given[: shape[0], i : i + shape[1]][:, :, None] * layer0[0 * k, i + row, column]
    hidden = jnp.maximum(jnp.sum(hidden, axis=1), 0.0)
    z = jnp.sum(hidden[:, :, None] * weights, axis=1) + _sums(layout, given, layer1, WIDTH)
    hidden2[:, _mine(COLUMNS)] = jnp.maximum(z, 0.0)

    @pl.when(pl.program_id(0) == 0)
    def _() -> None:
        hidden1[:, :WIDTH] = hidden
        hidden1[:, WIDTH:] = hidden2[:, WIDTH:] = given[: layout.filled_draws, :]


def _forward_2(layout: Layout, hidden2: Any, layer2: Any, hidden3: Any) -> None:
    """Some columns of layer 2."""
    hidden3[:, _mine(COLUMNS)] = jnp.maximum(_sums(layout, hidden2, layer2), 0.0)

    @pl.when(pl.program_id(0) == 0)
    def _() -> None:
        hidden3[:, WIDTH:] = hidden2[:, WIDTH:]


def _forward_3(layout: Layout, hidden3: Any, layer3: Any, box: Any, theta: Any, slope: Any) -> None:
    """Some coordinates of θ, and their derivatives by z, over K."""
    from jax.experimental.pallas import triton

    mine, shape = _mine(LAST_COLUMNS), (layout.filled_draws, LAST_COLUMNS)
    k, column = (jax.lax.broadcasted_iota(jnp.int32, shape, i) for i in range(2))
    column += pl.program_id(0) * LAST_COLUMNS
    center, radius, reach = (box[i, mine][None, :] for i in range(3))
    bounded = jnp.tanh(_sums(layout, hidden3, layer3) / reach)
    inside = (k < layout.draws) & (column < layout.outputs)
    triton.store(theta.at[k, column], center + radius * bounded, mask=inside)
    slope[:, mine] = radius * (1 - bounded**2) / (reach * layout.draws)


def _backward_2(
    layout: Layout, given: Any, slope: Any, answers: Any, hidden3: Any, layer3: Any, hidden2: Any, _: Any,
    layer2: Any, back1: Any,
) -> None:  # fmt: skip
    """Some rows of layer 2, and the derivatives by the units before them."""
    old, draws = _read(layout, given, hidden2, layer2), range(layout.draws)
    pieces = [slice(i, i + FEWEST) for i in range(0, layout.filled_outputs, FEWEST)]
    out = [[_out(layout, slope, answers, k, piece) for piece in pieces] for k in draws]
    back = []
    for part in _parts(WIDTH):
        active, total = [hidden3[k, part] > 0 for k in draws], [jnp.zeros((PART, FEWEST), jnp.float32)] * layout.draws
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


def _sums(layout: Layout, before: Any, layer: Any, first: int = 0) -> Any:
    """Σ_r before[k, r] · layer[first + r] for every k, by sums of products: K rows are too few for tensor cores.

    A sum across warps is slow, so there is only one, at the end.
    """
    _, rows, columns = layer.shape
    total = jnp.zeros((layout.filled_draws, FEWEST, columns), jnp.float32)
    for i in range(first, rows, FEWEST):
        j = i - first
        total += before[: layout.filled_draws, j : j + FEWEST][:, :, None] * layer[:, i : i + FEWEST, :]
    return jnp.sum(total, axis=1)


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
