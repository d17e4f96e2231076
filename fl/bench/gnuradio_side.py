"""GNU Radio's side of a benchmark, in a process of its own: `gnuradio_worker`."""

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

from fl.bench import gnuradio_worker
from flowgraphs.errors import FlowgraphError
from flowgraphs.runtime import gnuradio_python

Ask = Callable[..., dict[str, Any]]


@contextmanager
def worker(role: str, settings: Mapping[str, Any]) -> Iterator[tuple[str, Ask]]:
    """`gnuradio_worker` as a process of its own: the version of GNU Radio, and a function that asks it."""
    command = [gnuradio_python(), gnuradio_worker.__file__, role, json.dumps(settings)]
    with (
        tempfile.TemporaryFile("w+") as errors,
        # Leaving closes its input, which ends it, and waits.
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        questions, answers = process.stdin, process.stdout
        if questions is None or answers is None:
            raise FlowgraphError("GNU Radio's side of the benchmark has no pipes")

        def ask(**request: Any) -> dict[str, Any]:
            try:
                questions.write(json.dumps(request) + "\n")
                questions.flush()
            except BrokenPipeError as error:
                raise FlowgraphError(_last_words(errors)) from error
            return _answer(answers, errors)

        try:
            yield _answer(answers, errors)["gnuradio"], ask
        except BaseException:
            process.kill()
            raise


def _answer(answers: IO[str], errors: IO[str]) -> dict[str, Any]:
    line = answers.readline()
    if not line:
        raise FlowgraphError(_last_words(errors))
    answer: dict[str, Any] = json.loads(line)
    return answer


def _last_words(errors: IO[str]) -> str:
    errors.seek(0)
    lines = [line.strip() for line in errors.read().splitlines() if line.strip() and ":info:" not in line]
    return f"GNU Radio's side of the benchmark has ended: {lines[-1] if lines else 'it says nothing'}"


def missing_gnuradio() -> str | None:
    """Why GNU Radio cannot be measured here, and what to do; None where it can."""
    try:
        gnuradio_python()
    except FlowgraphError as error:
        return str(error)
    return None
