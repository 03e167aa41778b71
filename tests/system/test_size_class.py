"""Classes of size for memory that is used again."""

from __future__ import annotations

from waifu2x.system.size_class import size_class


def test_there_are_two_classes_in_each_doubling() -> None:
    found = sorted({size_class(size) for size in range(1, 70_000)})
    assert found == [4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152, 65536, 98304]
    for size in (1, 4096, 4097, 6144, 6145, 65_536, 65_537, 3 << 40, (3 << 40) + 1):
        made = size_class(size)
        assert size <= made <= max(4096, size * 3 // 2)
        assert size_class(made) == made


def test_large_sizes_spare_an_eighth_at_most() -> None:
    mib = 1 << 20
    assert size_class(64 * mib) == 64 * mib
    assert size_class(64 * mib + 1) == 72 * mib
    assert size_class(1092 * mib) == 1152 * mib
    for size in range(64 * mib, 1024 * mib, 7 * mib + 13):
        made = size_class(size)
        assert size <= made <= size * 9 / 8
        assert size_class(made) == made
