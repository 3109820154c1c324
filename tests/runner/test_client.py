from __future__ import annotations

import pytest

from patchkit.errors import RunnerError
from patchkit.runner.client import Answer, Round, ask_all, served_name
from tests.runner.fake import free_port


def test_server_that_is_gone_is_an_error_that_says_so() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(RunnerError, match="does not answer a prompt"):
        ask_all(url, "tiny", ["a", "b"], 4, 2)
    with pytest.raises(RunnerError, match="does not name its model"):
        served_name(url)


def test_throughput_is_of_all_answers_over_the_whole_time() -> None:
    assert Round((Answer(30, 0.1, 1), Answer(10, 0.1, 2)), 2).throughput == 20
