"""Converts planes of film frames to RGB and back, row by row, as `imaging.planar` defines it.

Chroma is summed in integers, as 16 times its value, so sums are exact. Rows of sums are padded with
copies of their first and last values: then no loop has edge cases, and LLVM vectorises all of them.
The dtypes of factors and scratch decide the floats of the arithmetic.
"""

from __future__ import annotations

import numpy as np

from waifu2x.backends.cpu.kernels import DOUBLES, FLOATS, INTEGER, INTEGERS, entry_point, native
from waifu2x.backends.cpu.kernels.memory import advance, pointer
from waifu2x.backends.cpu.pack.records import GREY, RGB, YUV


@entry_point(INTEGERS, FLOATS, FLOATS, FLOATS, INTEGER, INTEGER)
def read_planes(picture, factors, pixels, scratch, first, end):  # type: ignore[no-untyped-def]
    """Writes rows `first` to `end` of a picture as RGB, clipped to [0, 1]; `run.planar` makes the
    arguments."""
    _read_samples(picture, factors, pixels, scratch, first, end)


@entry_point(INTEGERS, DOUBLES, FLOATS, DOUBLES, INTEGER, INTEGER)
def read_exactly(picture, factors, pixels, scratch, first, end):  # type: ignore[no-untyped-def]
    """Does the same in float64, up to the pixels."""
    _read_samples(picture, factors, pixels, scratch, first, end)


@native
def _read_samples(picture, factors, pixels, scratch, first, end):  # type: ignore[no-untyped-def]
    if picture[6] == 1:
        _read(picture, _planes(picture, np.uint8), factors, pixels, scratch, first, end)
    else:
        _read(picture, _planes(picture, np.uint16), factors, pixels, scratch, first, end)


@native
def _planes(picture, kind):  # type: ignore[no-untyped-def]
    """Returns the three planes of a picture as pointers to samples of that dtype."""
    return pointer(picture[0], kind), pointer(picture[1], kind), pointer(picture[2], kind)


@native
def _read(picture, planes, factors, pixels, scratch, first, end):  # type: ignore[no-untyped-def]
    y, u, v = planes
    rows, columns = picture[7], picture[8]
    row_step, column_step = picture[9], picture[11]
    chroma_rows = (rows + row_step - 1) // row_step
    chroma_columns = (columns + column_step - 1) // column_step
    near_weight = np.float32(3) if picture[10] else np.float32(2)
    sums = advance(scratch, 1)
    us = advance(scratch, 3 + chroma_columns)
    vs = advance(us, columns + 1)
    luma_zero, luma_unit, chroma_zero = factors[0], factors[1], factors[2]
    red_v, green_u, green_v, blue_u = factors[3], factors[4], factors[5], factors[6]
    for row in range(first, end):
        luma = advance(y, row * picture[3])
        target = advance(pixels, 3 * columns * row)
        if picture[13] != YUV:
            greens, blues, reds = luma, luma, luma
            if picture[13] == RGB:
                blues, reds = advance(u, row * picture[4]), advance(v, row * picture[5])
            for x in range(columns):
                target[3 * x] = _clip((np.float32(reds[x]) - luma_zero) * luma_unit)
                target[3 * x + 1] = _clip((np.float32(greens[x]) - luma_zero) * luma_unit)
                target[3 * x + 2] = _clip((np.float32(blues[x]) - luma_zero) * luma_unit)
            continue
        near = row // row_step
        other = near
        if row_step == 2:
            other = near + 1 if row % 2 else near - picture[10]
        far = min(max(other, 0), chroma_rows - 1)
        _blend(u, near * picture[4], far * picture[4], near_weight, sums, chroma_columns)
        _interpolate(sums, us, columns, column_step, picture[12])
        _blend(v, near * picture[5], far * picture[5], near_weight, sums, chroma_columns)
        _interpolate(sums, vs, columns, column_step, picture[12])
        for x in range(columns):
            light = (np.float32(luma[x]) - luma_zero) * luma_unit
            blueness, redness = us[x] - chroma_zero, vs[x] - chroma_zero
            target[3 * x] = _clip(light + red_v * redness)
            target[3 * x + 1] = _clip(light + (green_u * blueness + green_v * redness))
            target[3 * x + 2] = _clip(light + blue_u * blueness)


@native
def _blend(plane, near, far, near_weight, sums, count):  # type: ignore[no-untyped-def]
    """Blends two rows of samples by weights of quarters, to sums 4 times as large."""
    near_row, far_row = advance(plane, near), advance(plane, far)
    far_weight = np.float32(4) - near_weight
    for x in range(count):
        near_value, far_value = np.float32(near_row[x]), np.float32(far_row[x])
        sums[x] = near_weight * near_value + far_weight * far_value
    sums[-1] = sums[0]
    sums[count] = sums[count - 1]


@native
def _interpolate(sums, target, columns, step, is_midway):  # type: ignore[no-untyped-def]
    """Interpolates sums to a value for each pixel, 4 times as large."""
    if step == 1:
        for x in range(columns):
            target[x] = np.float32(4) * sums[x]
        return
    if is_midway:
        for x in range((columns + 1) // 2):
            near = np.float32(3) * sums[x]
            target[2 * x] = near + sums[x - 1]
            target[2 * x + 1] = near + sums[x + 1]
    else:
        for x in range((columns + 1) // 2):
            target[2 * x] = np.float32(4) * sums[x]
            target[2 * x + 1] = np.float32(2) * (sums[x] + sums[x + 1])


@entry_point(INTEGERS, FLOATS, FLOATS, FLOATS, INTEGER, INTEGER)
def write_planes(picture, factors, pixels, scratch, first, end):  # type: ignore[no-untyped-def]
    """Writes rows `first` to `end` of cells, the pixels that share a chroma sample, from RGB."""
    _write_samples(picture, factors, pixels, scratch, first, end)


@entry_point(INTEGERS, DOUBLES, FLOATS, DOUBLES, INTEGER, INTEGER)
def write_exactly(picture, factors, pixels, scratch, first, end):  # type: ignore[no-untyped-def]
    """Does the same in float64."""
    _write_samples(picture, factors, pixels, scratch, first, end)


@native
def _write_samples(picture, factors, pixels, scratch, first, end):  # type: ignore[no-untyped-def]
    if picture[6] == 1:
        _write(picture, _planes(picture, np.uint8), factors, pixels, scratch, first, end)
    else:
        _write(picture, _planes(picture, np.uint16), factors, pixels, scratch, first, end)


@native
def _write(picture, planes, factors, pixels, scratch, first, end):  # type: ignore[no-untyped-def]
    y, u, v = planes
    rows, columns, row_step, column_step = picture[7], picture[8], picture[9], picture[11]
    floats = 3 * columns
    cells = (columns + column_step - 1) // column_step
    reds = advance(scratch, 1)
    greens, blues = advance(reds, columns + 2), advance(reds, 2 * (columns + 2))
    before, at, behind = _weights(row_step, picture[10])
    for cell in range(first, end):
        top = cell * row_step
        if picture[13] == RGB:
            here = advance(pixels, top * floats)
            _write_colour(advance(y, top * picture[3]), here, 1, factors, columns)
            _write_colour(advance(u, top * picture[4]), here, 2, factors, columns)
            _write_colour(advance(v, top * picture[5]), here, 0, factors, columns)
            continue
        for row in range(top, min(top + row_step, rows)):
            luma = advance(y, row * picture[3])
            _write_luma(luma, advance(pixels, row * floats), factors, columns)
        if picture[13] == GREY:
            continue
        above = advance(pixels, max(top - 1, 0) * floats)
        here = advance(pixels, top * floats)
        below = advance(pixels, min(top + 1, rows - 1) * floats)
        for x in range(columns):
            red, green, blue = 3 * x, 3 * x + 1, 3 * x + 2
            reds[x] = before * above[red] + at * here[red] + behind * below[red]
            greens[x] = before * above[green] + at * here[green] + behind * below[green]
            blues[x] = before * above[blue] + at * here[blue] + behind * below[blue]
        colours = (reds, greens, blues)
        for sums in colours:
            sums[-1] = sums[0]
            sums[columns] = sums[columns - 1]
        u_row, v_row = advance(u, cell * picture[4]), advance(v, cell * picture[5])
        across = _weights(column_step, picture[12])
        if column_step == 1:
            _write_chroma((u_row, v_row), colours, factors, cells, 1, across)
        else:
            _write_chroma((u_row, v_row), colours, factors, cells, 2, across)


@native
def _weights(step, is_midway):  # type: ignore[no-untyped-def]
    """Returns the weights, in quarters, of the pixel before the first one of a cell, of that one,
    and of the next."""
    if step == 1:
        return np.float32(0), np.float32(4), np.float32(0)
    if is_midway:
        return np.float32(0), np.float32(2), np.float32(2)
    return np.float32(1), np.float32(2), np.float32(1)


@native
def _write_luma(target, pixels, factors, columns):  # type: ignore[no-untyped-def]
    red, green, blue, zero, peak = factors[0], factors[1], factors[2], factors[3], factors[11]
    for x in range(columns):
        value = red * pixels[3 * x] + green * pixels[3 * x + 1] + blue * pixels[3 * x + 2]
        target[x] = np.int32(min(max(value + zero, np.float32(0)), peak))


@native
def _write_colour(target, pixels, colour, factors, columns):  # type: ignore[no-untyped-def]
    factor, zero, peak = factors[colour], factors[3], factors[11]
    for x in range(columns):
        value = factor * pixels[3 * x + colour] + zero
        target[x] = np.int32(min(max(value, np.float32(0)), peak))


@native
def _write_chroma(chroma, colours, factors, cells, step, weights):  # type: ignore[no-untyped-def]
    u, v = chroma
    reds, greens, blues = colours
    before, at, behind = weights
    u_red, u_green, u_blue = factors[4], factors[5], factors[6]
    v_red, v_green, v_blue = factors[7], factors[8], factors[9]
    zero, peak = factors[10], factors[11]
    for cell in range(cells):
        x = cell * step
        red = before * reds[x - 1] + at * reds[x] + behind * reds[x + 1]
        green = before * greens[x - 1] + at * greens[x] + behind * greens[x + 1]
        blue = before * blues[x - 1] + at * blues[x] + behind * blues[x + 1]
        blueness = u_red * red + u_green * green + u_blue * blue
        redness = v_red * red + v_green * green + v_blue * blue
        u[cell] = np.int32(min(max(blueness + zero, np.float32(0)), peak))
        v[cell] = np.int32(min(max(redness + zero, np.float32(0)), peak))


@native
def _clip(value):  # type: ignore[no-untyped-def]
    return min(max(value, np.float32(0)), np.float32(1))
