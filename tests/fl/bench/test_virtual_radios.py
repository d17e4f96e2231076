"""The measurement of speed measures: it streams what it says through real clients. How fast is not asserted."""

import shutil

import pytest

from fl.bench.virtual_radios import measure_throughput

pytestmark = pytest.mark.skipif(
    shutil.which("iio_info") is None,
    reason="libiio is missing: apt-get install --no-install-recommends libiio-utils libiio0",
)


@pytest.mark.parametrize(("senders", "receivers"), [((1, 2, 3), (0,)), ((0, 1), (0, 1))])
def test_it_streams_what_was_asked_for(senders: tuple[int, ...], receivers: tuple[int, ...]) -> None:
    result = measure_throughput(senders, receivers, samples=50_000, block_samples=4096)
    assert (result.senders, result.receivers) == (len(senders), len(receivers))
    assert result.samples == 13 * 4096
    assert result.rate_hz > 0
    assert result.cpu_s_per_sample > 0
