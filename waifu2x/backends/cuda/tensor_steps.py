"""The steps of a program on matrix units: what each reads and writes, its weights, its launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends.cuda import tensor_vectors
from waifu2x.backends.cuda.arguments import Address, address_of, packed
from waifu2x.backends.cuda.tensor_layout import (
    COLUMNS_BEYOND,
    PLANE_UNIT,
    ROWS_BEYOND,
    BatchGrid,
    FewLayout,
    MapArguments,
    MapLayout,
)
from waifu2x.backends.cuda.tensor_pack import (
    PIECE,
    pack_first,
    pack_follows,
    pack_last,
    placed,
    round_up,
)
from waifu2x.backends.cuda.tensor_shape import (
    COLUMNS,
    MOST_SUMS,
    Job,
    Shape,
    candidates,
    grid,
    macros,
    ranked,
)
from waifu2x.backends.cuda.tensor_vectors import VectorPlaces
from waifu2x.backends.cuda.units import Units, is_old
from waifu2x.backends.gpu.executor import Batch, Place
from waifu2x.backends.gpu.runtime import Buffer, Macros
from waifu2x.backends.gpu.tuning import Choose
from waifu2x.lowering.steps import Average, Move, Product, Program, View
from waifu2x.model import Activation, Size
from waifu2x.tiling import Box

if TYPE_CHECKING:
    from waifu2x.backends.cuda.runtime import CudaKernel, CudaRuntime

_FIRST_ROWS = 8
_WARP = 32
_MOVE_THREADS = 256
_MOVE_REPEATS = 4
_AVERAGE_BLOCKS = 8
"""Of a sum, for each multiprocessor."""
_PIXEL_UNITS = {8: 256 / 255, 16: 65536 / 65535, 32: 1.0, 0: 1.0}
"""What a pixel of 1 is worth, by the macro PIXEL: integers come as fractions of a power of two."""
_BORDERS = {"replicate": 0, "reflect": 1, "zero": 2}


class Range(NamedTuple):
    """`Range` in `kernels/tensor.cuh`."""

    top: int = 0
    left: int = 0
    bottom: int = 0
    right: int = 0


class LayerExtent(NamedTuple):
    """`LayerExtent` in `kernels/tensor.cuh`."""

    rows: int
    columns: int
    tiles_across: int = 0
    tiles: int = 0
    across: int = 1
    pictures: int = 1


class ProductArguments(NamedTuple):
    """`Product` in `kernels/tensor.cuh`."""

    source: Address
    weights: Address
    follows: Address
    target: Address
    residual: Address
    source_map: MapArguments
    target_map: MapArguments
    residual_map: MapArguments
    extent: LayerExtent
    real: Range
    kept: Range
    factor: np.float32
    slope: np.float32


class SourceArguments(NamedTuple):
    """`Source` in `kernels/tensor_first.cu`."""

    rows: int
    columns: int
    top: int
    left: int
    padding: int


class MoveArguments(NamedTuple):
    """`Move` in `kernels/tensor_move.cu`."""

    source: Address
    target: Address
    residual: Address
    factors: Address
    source_map: MapArguments
    target_map: MapArguments
    residual_map: MapArguments
    extent: LayerExtent
    real: Range
    factors_each: int
    factor: np.float32


class AverageArguments(NamedTuple):
    """`Average` in `kernels/tensor_average.cu`."""

    source: Address
    sums: Address
    source_map: MapArguments
    part: Range
    each: int
    across: int
    lines: int


@dataclass(frozen=True)
class Task:
    """Everything about one pass that a step asks for."""

    batch: Batch
    boxes: Mapping[int, Box]
    """What is computed, by the numbers of steps."""
    places: Mapping[int, Place]
    grid: BatchGrid
    vectors: VectorPlaces

    def address(self, value: int) -> Address:
        """Of a map."""
        place = self.places[value]
        return address_of(place.buffer, place.offset)


class Launch(NamedTuple):
    """A kernel, what it is compiled from, and its arguments."""

    stem: str
    macros: Macros
    threads: int
    shared: int
    blocks: tuple[int, int, int]
    arguments: Callable[[], bytes]
    """Uploads weights where it must."""


class _Step:
    """A step's data on the device, and the kernels that were built for it."""

    def __init__(self, runtime: CudaRuntime, program: Program, number: int) -> None:
        self._runtime = runtime
        self._program = program
        self._number = number
        self.kernels: dict[object, CudaKernel] = {}
        """By what they are compiled from."""
        self._buffers: dict[object, Buffer] = {}

    def queue(self, launch: Launch) -> None:
        """Queues one of its own launches."""
        key = (launch.stem, *launch.macros.items())
        if key not in self.kernels:
            program = self._runtime.build(launch.stem, launch.macros)
            self.kernels[key] = program.kernel(launch.stem, launch.threads, launch.shared)
        self._runtime.launch(self.kernels[key], launch.blocks, launch.arguments())

    def _uploaded(self, key: object, make: Callable[[], NDArray[Any]]) -> Address:
        if key not in self._buffers:
            array = np.ascontiguousarray(make())
            buffer = self._runtime.allocate(array.nbytes)
            self._runtime.upload(buffer, array)
            self._buffers[key] = buffer
        return address_of(self._buffers[key])

    def close(self) -> None:
        """Frees its data."""
        for buffer in self._buffers.values():
            buffer.release()

    def _reaches_out(self, value: int, box: Box, task: Task) -> bool:
        """Whether pixels of a value are zero that lie in a box of it."""
        rows, columns = task.batch.sizes[value]
        inside = box.top >= 0 and box.left >= 0 and box.bottom <= rows and box.right <= columns
        return self._program.values[value].zero_outside and not inside


class ProductStep(_Step):
    """A product: a first one, which reads pixels, a last one, which makes them, or any other.

    Pixels are also maps of few planes.
    """

    def __init__(
        self,
        runtime: CudaRuntime,
        program: Program,
        number: int,
        layouts: Sequence[MapLayout | FewLayout],
        units: Units,
        terms: int,
        choose: Choose,
    ) -> None:
        super().__init__(runtime, program, number)
        step = program.steps[number]
        assert isinstance(step, Product)
        self._step = step
        self._layouts = layouts
        self._terms = terms
        self._choose = choose
        self._source = layouts[step.source.value]
        self._target = layouts[step.target.value]
        self._is_first = step.source.value == 0 or isinstance(self._source, FewLayout)
        self._job: Job | None = None
        if not self._is_first:
            assert isinstance(self._source, MapLayout)
            last = not isinstance(self._map_target, MapLayout)
            parts = self._source.parts[step.source.first : step.source.first + step.source.parts]
            inputs = sum(parts) * self._source.fold**2
            outputs = step.out_planes if last else self._outputs
            self._job = Job(inputs, self._source.group, outputs, step.taps, terms, last)
            self._candidates = candidates(
                self._job, units, runtime.capability, runtime.shared_bytes
            )
        self._shapes: dict[Size, Shape] = {}

    def launch(self, task: Task) -> Launch:
        """The launch for what a task computes of it."""
        return self._first(task) if self._is_first else self._product(task)

    @property
    def _map_target(self) -> MapLayout | None:
        """The target's layout if it is a map of many planes."""
        is_map = self._step.target.value != self._program.result
        return self._target if is_map and isinstance(self._target, MapLayout) else None

    @property
    def _each(self) -> int:
        """Planes of a pixel of the target's part, padded."""
        assert isinstance(self._target, MapLayout)
        return self._target.parts[self._step.target.part]

    @property
    def _outputs(self) -> int:
        """Planes of the product's result, padded for a map."""
        return self._each * self._step.shuffle**2

    @cached_property
    def _output_places(self) -> NDArray[np.intp]:
        """Where the planes of the result stand among the padded ones."""
        pixels = self._step.shuffle**2
        if self._map_target is None:
            return np.arange(self._step.out_planes)
        planes = np.arange(self._step.out_planes // pixels)
        places: NDArray[np.intp] = np.arange(pixels)[:, np.newaxis] * self._each + planes
        return places.ravel()

    # A first one.

    def _first(self, task: Task) -> Launch:
        step, pixels = self._step, self._pixels_read(task)
        box = self._computed(task)
        bits, geometry = pixels
        rows, columns = box.height, box.width
        across, down, pictures = task.grid
        extent = LayerExtent(rows, columns, across=across, pictures=pictures)
        cell = MapArguments(rows=rows + 2, columns=columns + 2)
        if pictures > 1:
            rows, columns = down * cell.rows - 2, across * cell.columns - 2
        is_picture = step.source.value == 0
        chosen: Macros = {
            "COLUMNS": COLUMNS,
            "ROWS": _FIRST_ROWS,
            "PLANES": step.in_planes,
            "PIXEL": bits,
            "ENLARGE": step.source.enlarge,
            "BORDER": _BORDERS[self._program.model.border] if is_picture else 0,
            "OUT_PLANES": self._outputs,
            "TERMS": self._terms,
            "OLD": int(is_old(self._runtime.capability)),
            **self._store_macros(task, box),
        }

        def arguments() -> bytes:
            def weights() -> NDArray[Any]:
                weight = placed(step.weight, 0, self._output_places, self._outputs)
                return pack_first(weight, _PIXEL_UNITS[bits])

            source = task.batch.source
            address = address_of(source.buffer) if is_picture else task.address(step.source.value)
            product = ProductArguments(
                address,
                self._uploaded(bits, weights),
                self._follows(self._outputs),
                task.address(step.target.value),
                *self._stores(task, box, cell, extent),
            )
            return packed(product) + packed(geometry)

        blocks = (-(-columns // COLUMNS), -(-rows // _FIRST_ROWS), self._outputs // 32)
        return Launch("tensor_first", chosen, _FIRST_ROWS * _WARP, 0, blocks, arguments)

    def _pixels_read(self, task: Task) -> tuple[int, SourceArguments]:
        """The macro PIXEL, and where a first one reads."""
        view, box = self._step.source, self._computed(task)
        top, left = box.top + view.offset, box.left + view.offset
        if view.value == 0:
            source = task.batch.source
            size = source.shape[1:3]
            bits = 8 * source.dtype.itemsize
            return bits, SourceArguments(*size, top, left, self._program.model.padding)
        held = task.places[view.value].box
        return 0, SourceArguments(held.height, held.width, top - held.top, left - held.left, 0)

    # Any other.

    def _product(self, task: Task) -> Launch:
        step, job, source = self._step, self._job, self._source
        assert job is not None
        assert isinstance(source, MapLayout)
        held = task.places[step.source.value].box
        box = self._computed(task)
        top = box.top + step.source.offset - held.top // source.fold
        left = box.left + step.source.offset - held.left // source.fold
        read = source.arguments(held, task.grid, top, left)
        rows, columns = box.height, box.width
        across, down, pictures = task.grid
        if pictures > 1:
            rows = down * read.rows - (job.side - 1)
            columns = across * read.columns - (job.side - 1)
        shape = self._shape((rows, columns))
        tiles_across = -(-columns // job.results)
        tiles = tiles_across * -(-rows // shape.rows)
        extent = LayerExtent(box.height, box.width, tiles_across, tiles, across, pictures)
        width = shape.width(job)
        chosen: Macros = {
            **macros(job, shape),
            "ROWS_BEYOND": ROWS_BEYOND,
            "COLUMNS_BEYOND": COLUMNS_BEYOND,
            "STORED_GROUPS": source.stored // source.group,
            "FIRST_GROUP": source.start(step.source.first) // source.group,
            **self._store_macros(task, box),
        }
        if job.last:
            target = task.batch.target
            is_result = step.target.value == self._program.result
            chosen = {
                **chosen,
                "PLANES": step.out_planes // step.shuffle**2,
                "PIXEL": 8 * target.dtype.itemsize if is_result else 0,
            }

        def arguments() -> bytes:
            pack = pack_last if job.last else shape.pack
            planes = width if job.last else job.outputs
            return packed(
                ProductArguments(
                    task.address(step.source.value),
                    self._uploaded(width, lambda: pack(self._weight, width, job.group, job.terms)),
                    self._follows(planes),
                    self._target_address(task),
                    *self._stores(task, box, read, extent),
                )
            )

        blocks = (
            grid(job, shape, tiles, self._runtime.limits.compute_units),
            1,
            1,
        )
        return Launch(shape.stem, chosen, shape.threads(job), shape.shared(job), blocks, arguments)

    def _shape(self, size: Size) -> Shape:
        """How work of so many rows and columns is cut."""
        if size not in self._shapes:
            job = self._job
            assert job is not None
            best_first, size_class = ranked(
                job, self._candidates, *size, self._runtime.limits.compute_units
            )
            self._shapes[size] = self._choose(self._number, best_first, f"{job} {size_class}")
        return self._shapes[size]

    @cached_property
    def _weight(self) -> NDArray[Any]:
        """(outputs, inputs, side, side), padded as maps are."""
        step, job, source = self._step, self._job, self._source
        assert job is not None
        assert isinstance(source, MapLayout)
        view = step.source
        planes = self._program.values[view.value].parts[view.first : view.first + view.parts]
        weight = placed(step.weight, 0, self._output_places, job.outputs)
        return placed(weight, 1, source.planes(view.first, planes), job.inputs)

    # What they share.

    def _follows(self, planes: int) -> Address:
        step = self._step
        return self._uploaded(
            "follows",
            lambda: pack_follows(step.bias, step.activation, self._output_places, planes),
        )

    def _computed(self, task: Task) -> Box:
        """The results that are computed: of a map, those for which it has room."""
        box, shuffle = task.boxes[self._number], self._step.shuffle
        if self._map_target is None:
            return box
        held = task.places[self._step.target.value].box
        top, left = max(box.top, -(-held.top // shuffle)), max(box.left, -(-held.left // shuffle))
        bottom = min(box.bottom, held.bottom // shuffle)
        right = min(box.right, held.right // shuffle)
        return Box(top, left, bottom - top, right - left)

    def _made(self, box: Box) -> Box:
        """The target's pixels."""
        return Box(*(number * self._step.shuffle for number in box))

    def _store_macros(self, task: Task, box: Box) -> dict[str, str | int]:
        """What of a kernel hangs on what follows the sums."""
        step, target = self._step, self._map_target
        result: dict[str, str | int] = {
            "SHUFFLE": step.shuffle,
            "ZERO": int(self._reaches_out(step.target.value, self._made(box), task)),
            "ACTIVATION": _activation(step.activation),
            "RESIDUAL": int(step.residual is not None),
            "STACK": int(task.grid.pictures > 1),
        }
        if target:
            result["OUT_GROUP"] = target.group
            result["OUT_STORED"] = target.stored
            result["EACH"] = self._each
            result["PART"] = target.start(step.target.part)
            result["FOLD"] = target.fold
        if target and step.residual:
            added = self._layouts[step.residual.value]
            assert isinstance(added, MapLayout)
            result["RESIDUAL_GROUP"] = added.group
            result["RESIDUAL_STORED"] = added.stored
            result["RESIDUAL_PART"] = added.start(step.residual.first)
        return result

    def _target_address(self, task: Task) -> Address:
        if self._step.target.value == self._program.result:
            return address_of(task.batch.target.buffer)
        return task.address(self._step.target.value)

    def _stores(
        self, task: Task, box: Box, read: MapArguments, extent: LayerExtent
    ) -> tuple[Any, ...]:
        """ProductArguments from `residual` on."""
        step, grid, shuffle = self._step, task.grid, self._step.shuffle
        made = self._made(box)
        rows, columns = task.batch.sizes[step.target.value]
        real = Range(-made.top, -made.left, rows - made.top, columns - made.left)
        kept = Range()
        if self._map_target:
            held = task.places[step.target.value].box
            top, left = made.top - held.top, made.left - held.left
            write = self._map_target.arguments(held, grid, top, left)
        else:
            held, wanted, pixels = self._pixels_written(task)
            top, left = made.top - held.top, made.left - held.left
            write = MapArguments(
                pitch=pixels[1], top=top, left=left, rows=pixels[0], columns=pixels[1]
            )
            kept = Range(
                wanted.top - held.top,
                wanted.left - held.left,
                wanted.bottom - held.top,
                wanted.right - held.left,
            )
        residual, added = Address(0), MapArguments()
        if step.residual:
            residual = task.address(step.residual.value)
            layout, held = (
                self._layouts[step.residual.value],
                task.places[step.residual.value].box,
            )
            offset = step.residual.offset // shuffle
            top = box.top + offset - held.top // shuffle
            left = box.left + offset - held.left // shuffle
            if isinstance(layout, MapLayout):
                added = layout.arguments(held, grid, top, left)
            else:
                added = MapArguments(
                    pitch=held.width, top=top, left=left, rows=held.height, columns=held.width
                )
        slope = np.float32(step.activation.slopes[0])
        return residual, read, write, added, extent, real, kept, np.float32(step.factor), slope

    def _pixels_written(self, task: Task) -> tuple[Box, Box, Size]:
        """The box of each picture that there is memory for, what of it is wanted, its rows and
        columns."""
        value = self._step.target.value
        if value == self._program.result:
            held = task.batch.target_box
            return held, task.batch.tile, task.batch.target.shape[1:3]
        held = task.places[value].box
        return held, held, (held.height, held.width)


class MoveStep(_Step):
    """A move between maps."""

    def __init__(
        self,
        runtime: CudaRuntime,
        program: Program,
        number: int,
        layouts: Sequence[MapLayout | FewLayout],
        terms: int,
        vector_places: Sequence[int],
    ) -> None:
        super().__init__(runtime, program, number)
        step = program.steps[number]
        assert isinstance(step, Move)
        self._step = step
        self._layouts = layouts
        self._terms = terms
        self._vector_places = vector_places

    def launch(self, task: Task) -> Launch:
        """The launch for what a task computes of it."""
        step, box = self._step, task.boxes[self._number]
        source, target = self._layouts[step.source.value], self._layouts[step.target.value]
        assert isinstance(source, MapLayout)
        assert isinstance(target, MapLayout)
        held = task.places[step.target.value].box
        planes, moved = moved_planes(self._program, step)
        pieces = next(n for n in (8, 4, 1) if moved % (PIECE * n) == 0)
        chosen: dict[str, str | int] = {
            "THREADS": _MOVE_THREADS,
            "PIECES": pieces,
            "REPEATS": _MOVE_REPEATS,
            "PLANES": planes,
            "MOVED": moved,
            "GROUP": source.group,
            "STORED": source.stored,
            "IN_EACH": source.parts[step.source.first],
            "IN_FOLD": source.fold,
            "IN_PART": source.start(step.source.first),
            "ENLARGE": step.source.enlarge,
            "FACTORS": int(step.factors is not None),
            "GATE": int(step.gate),
            "TERMS": self._terms,
            "OUT_GROUP": target.group,
            "OUT_STORED": target.stored,
            "EACH": target.parts[step.target.part],
            "PART": target.start(step.target.part) + step.target.plane,
            "FOLD": target.fold,
            "ZERO": int(self._reaches_out(step.target.value, box, task)),
            "RESIDUAL": int(step.residual is not None),
        }
        residual, added = Address(0), MapArguments()
        if step.residual:
            layout = self._layouts[step.residual.value]
            assert isinstance(layout, MapLayout)
            residual, added = task.address(step.residual.value), self._seen(task, step.residual)
            chosen["RESIDUAL_GROUP"] = layout.group
            chosen["RESIDUAL_STORED"] = layout.stored
            chosen["RESIDUAL_EACH"] = layout.parts[step.residual.first]
            chosen["RESIDUAL_FOLD"] = layout.fold
            chosen["RESIDUAL_PART"] = layout.start(step.residual.first)
        rows, columns = task.batch.sizes[step.target.value]
        factors = Address(0)
        if step.factors is not None:
            factors = Address(task.vectors.vectors + 4 * self._vector_places[step.factors])
        arguments = MoveArguments(
            task.address(step.source.value),
            task.address(step.target.value),
            residual,
            factors,
            self._seen(task, step.source),
            target.arguments(held, task.grid, box.top - held.top, box.left - held.left),
            added,
            LayerExtent(
                box.height, box.width, across=task.grid.across, pictures=task.grid.pictures
            ),
            Range(-box.top, -box.left, rows - box.top, columns - box.left),
            task.vectors.vectors_each,
            np.float32(step.factor),
        )
        columns_each = _MOVE_THREADS // pieces * _MOVE_REPEATS
        parts = moved // (PIECE * pieces)
        blocks = (-(-box.width // columns_each), box.height, parts * task.grid.pictures)
        return Launch("tensor_move", chosen, _MOVE_THREADS, 0, blocks, lambda: packed(arguments))

    def _seen(self, task: Task, view: View) -> MapArguments:
        """A map that a view reads, from the target's first pixel on."""
        layout, held = self._layouts[view.value], task.places[view.value].box
        assert isinstance(layout, MapLayout)
        box = task.boxes[self._number]
        top = box.top + view.offset - held.top * view.enlarge
        left = box.left + view.offset - held.left * view.enlarge
        return layout.arguments(held, task.grid, top, left)


class AverageStep(_Step):
    """The sums of a mean."""

    def __init__(
        self,
        runtime: CudaRuntime,
        program: Program,
        number: int,
        layouts: Sequence[MapLayout | FewLayout],
        sums_place: int,
    ) -> None:
        super().__init__(runtime, program, number)
        step = program.steps[number]
        assert isinstance(step, Average)
        self._value = step.source.value
        layout = layouts[self._value]
        assert isinstance(layout, MapLayout)
        self._layout = layout
        self._sums_place = sums_place

    def launch(self, task: Task, box: Box) -> Launch:
        """The launch for the sums of a box."""
        layout, held, grid = self._layout, task.places[self._value].box, task.grid
        chosen: Macros = {
            "THREADS": tensor_vectors.THREADS,
            "GROUP": layout.group,
            "STORED": layout.stored,
            "FOLD": layout.fold,
            "EACH": layout.parts[0],
            "PLANES": self._program.values[self._value].planes,
            "TERMS": layout.terms,
            "UNIT": tensor_vectors.UNIT,
        }
        part = Range(
            box.top - held.top, box.left - held.left, box.bottom - held.top, box.right - held.left
        )
        groups = layout.stored // layout.group
        first, last = part.top // layout.fold, -(-part.bottom // layout.fold)
        wanted = _AVERAGE_BLOCKS * self._runtime.limits.compute_units
        lines = max(1, (last - first) * groups * grid.pictures // wanted)
        arguments = AverageArguments(
            task.address(self._value),
            Address(task.vectors.sums + 8 * self._sums_place),
            layout.arguments(held, grid, 0, 0),
            part,
            task.vectors.sums_each,
            grid.across,
            lines,
        )
        blocks = (-(-(last - first) // lines), groups, grid.pictures)
        return Launch(
            "tensor_average", chosen, tensor_vectors.THREADS, 0, blocks, lambda: packed(arguments)
        )


def _activation(activation: Activation) -> int:
    """The macro ACTIVATION."""
    slopes = activation.slopes
    is_common = activation.kind == "leaky" and bool((slopes == slopes[0]).all())
    return 0 if is_common and 0 <= slopes[0] <= 1 else 1 + activation.code


def moved_planes(program: Program, step: Move) -> tuple[int, int]:
    """Planes that a move moves, and those that it writes: whoever writes a part's last plane writes
    the zeros behind it, too."""
    planes = program.values[step.source.value].parts[step.source.first]
    part_planes = program.values[step.target.value].parts[step.target.part]
    if step.target.plane + planes < part_planes:
        return planes, planes
    return planes, round_up(part_planes, PLANE_UNIT) - step.target.plane


def runs(program: Program, layouts: Sequence[MapLayout | FewLayout]) -> bool:
    """Whether matrix units can run every step of a program."""

    def is_map(value: int) -> bool:
        return 0 < value < program.result and isinstance(layouts[value], MapLayout)

    def is_product(step: Product) -> bool:
        few_in = not is_map(step.source.value)
        few_out = not is_map(step.target.value)
        if step.factor != 1 and step.residual is None:
            return False
        if few_in and few_out:
            return False
        if few_in:
            few = layouts[step.source.value]
            return isinstance(few, FewLayout) and step.taps == 3 and _is_map_residual(step)
        if few_out:
            residual = step.residual
            added = residual is None or (step.shuffle == 1 and not is_map(residual.value))
            return step.taps == 3 and step.out_planes <= MOST_SUMS and added
        return _is_map_residual(step)

    def _is_map_residual(step: Product) -> bool:
        return step.residual is None or is_map(step.residual.value)

    def is_move(step: Move) -> bool:
        views = [step.source, *([step.residual] if step.residual else [])]
        _, moved = moved_planes(program, step)
        return (
            step.shuffle == step.unshuffle == 1
            and step.resize == (1, 1)
            and all(is_map(view.value) for view in views)
            and is_map(step.target.value)
            and step.target.plane % PIECE == 0
            and moved % PIECE == 0
        )

    for step in program.steps:
        match step:
            case Product():
                good = is_product(step)
            case Move():
                good = is_move(step)
            case Average():
                good = is_map(step.source.value)
            case _:
                good = True
        if not good:
            return False
    return True
