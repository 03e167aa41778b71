"""Networks with branches on reduced maps on matrix units, whose kernels run on emulated warps:
against the definition, and as the same bits by tiles."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.backends.test_backends import PROMISED_DB, picture
from tests.backends.test_cuda import reduced
from tests.backends.test_tensor_attention import on_matrix_units
from tests.helpers import obvious
from waifu2x.backends import Precision


@pytest.mark.matrix
@pytest.mark.parametrize("precision", ["fp16", pytest.param("fp32", marks=pytest.mark.long)])
def test_reduced_maps(tmp_path: Path, precision: Precision) -> None:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not here")
    model, pixels = reduced(), picture(27, 22, 3)
    whole = on_matrix_units(model, pixels, precision, tmp_path)
    assert obvious.psnr(whole, obvious.run([model], pixels)) >= PROMISED_DB[precision]
    np.testing.assert_array_equal(
        on_matrix_units(model, pixels, precision, tmp_path, tile=12), whole
    )
