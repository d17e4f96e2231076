"""A filter and its slope over neighbouring complex samples, in whole vector registers.

Written in the compiler's own instructions, because no loop makes it keep the sums in registers and use each sample that
it loads for several of them: samples from a place on are wanted by the first taps of one register's sums, by the next
taps of the register's before it, and so on. That takes a third of the loads, and the arithmetic is what is left.
"""

from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic

TAPS, SLOPE_TAPS = 24, 16
"""Of the filter, and of its slope, which has the taps in the middle only."""
# Floats of a register.
_LANES = 16 if binding.get_host_cpu_features().get("avx512f") else 8
# Registers of sums, and as many of slopes: with weights and samples they fill what a processor has.
_SUMS = 8 if _LANES == 16 else 4
BLOCK = _SUMS * _LANES // 2
"""Complex samples that are made at once."""
REACH = 2 * (BLOCK + TAPS)
"""Floats of the input, from the place on, that may be looked at."""

_Vector = ir.VectorType(ir.FloatType(), _LANES)
_Int = ir.IntType(64)
# A product and a sum may be one instruction.
_FUSED = ("contract",)


def _filter_block(
    context: Any, x: Any, place: Any, weights: Any, row: Any, along: Any, beyond: Any, out: Any, to: Any
) -> Any:
    """out[to + i] = sum_k w[k] x[place + 2 k + i] + (along[i] + beyond) sum_k v[k] x[...], i = 0 ... 2 BLOCK - 1.

    w: TAPS weights from `row` on, v: SLOPE_TAPS after them. All arrays are of floats, contiguous, and these places
    exist.
    """
    del context
    return types.void(x, place, weights, row, along, beyond, out, to), _generate


filter_block: Any = intrinsic(_filter_block)


def _generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    arrays = {
        name: context.make_array(signature.args[number])(context, builder, arguments[number]).data
        for number, name in ((0, "x"), (2, "weights"), (4, "along"), (6, "out"))
    }
    place, row, beyond, to = (arguments[number] for number in (1, 3, 5, 7))
    sums, slopes = _sums(builder, arrays["x"], place, arrays["weights"], row)
    offset = _spread(builder, beyond)
    for number, (value, slope) in enumerate(zip(sums, slopes, strict=True)):
        at = _Int(_LANES * number)
        step = builder.fadd(_load(builder, arrays["along"], at), offset)
        made = _add_product(builder, slope, step, value)
        builder.store(made, _pointer(builder, arrays["out"], builder.add(to, at)), align=4)
    return context.get_dummy_value()


def _sums(builder: Any, x: Any, place: Any, weights: Any, row: Any) -> tuple[list[Any], list[Any]]:
    """The filter's registers and its slope's."""
    apart, first_slope = _LANES // 2, (TAPS - SLOPE_TAPS) // 2
    zero = ir.Constant(_Vector, [0.0] * _LANES)
    sums, slopes = [zero] * _SUMS, [zero] * _SUMS

    def weight(number: int) -> Any:
        return _spread(builder, builder.load(builder.gep(weights, [builder.add(row, _Int(number))])))

    for first in range(apart):
        # Taps that are a register's width apart see the same samples, for sums that are a register apart.
        taps = range(first, TAPS, apart)
        filters = [weight(tap) for tap in taps]
        tangents = [weight(TAPS + tap - first_slope) if 0 <= tap - first_slope < SLOPE_TAPS else None for tap in taps]
        for step in range(_SUMS + len(taps) - 1):
            samples = _load(builder, x, builder.add(place, _Int(_LANES * step + 2 * first)))
            for number, (one, other) in enumerate(zip(filters, tangents, strict=True)):
                target = step - number
                if 0 <= target < _SUMS:
                    sums[target] = _add_product(builder, samples, one, sums[target])
                    if other is not None:
                        slopes[target] = _add_product(builder, samples, other, slopes[target])
    return sums, slopes


def _add_product(builder: Any, one: Any, other: Any, total: Any) -> Any:
    return builder.fadd(builder.fmul(one, other, flags=_FUSED), total, flags=_FUSED)


def _spread(builder: Any, value: Any) -> Any:
    """A number in all places of a register."""
    nothing = ir.Constant(_Vector, ir.Undefined)
    first = builder.insert_element(nothing, value, ir.IntType(32)(0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(ir.IntType(32), _LANES), [0] * _LANES))


def _load(builder: Any, array: Any, at: Any) -> Any:
    return builder.load(_pointer(builder, array, at), align=4)


def _pointer(builder: Any, array: Any, at: Any) -> Any:
    return builder.bitcast(builder.gep(array, [at]), _Vector.as_pointer())
