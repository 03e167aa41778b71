"""Networks that sample maps on matrix units, whose kernels run on emulated warps: against the
definition, and as the same bits by tiles."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.backends.test_backends import PROMISED_DB, picture
from tests.backends.test_tensor_attention import on_matrix_units
from tests.helpers import obvious
from tests.helpers.graphs import sampled_head
from waifu2x.backends import Precision
from waifu2x.networks.model import Model


@pytest.mark.matrix
@pytest.mark.parametrize("precision", ["fp16", pytest.param("fp32", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "model",
    [
        pytest.param(sampled_head(2, 4), id="2x", marks=pytest.mark.long),
        pytest.param(sampled_head(3, 3, planes=27), id="3x"),
        pytest.param(sampled_head(1, 4, planes=4), id="few planes", marks=pytest.mark.long),
        pytest.param(sampled_head(2, 4, far=3e4), id="far"),
    ],
)
def test_samples(tmp_path: Path, model: Model, precision: Precision) -> None:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not here")
    pixels = picture(27, 22, 3)
    whole = on_matrix_units(model, pixels, precision, tmp_path)
    assert obvious.psnr(whole, obvious.run([model], pixels)) >= PROMISED_DB[precision]
    np.testing.assert_array_equal(
        on_matrix_units(model, pixels, precision, tmp_path, tile=12), whole
    )
