"""Jobs that arrive side by side are answered together, like lengths in one batch."""

import threading

from lib.language_models.batch_worker import BatchWorker


def make_worker(batch_size: int):
    batches: list[list[str]] = []
    worker = BatchWorker(
        measure_length=lambda job: len(job) or None,
        answer_batch=lambda batch: batches.append(list(batch)),
        batch_size=batch_size,
    )
    return worker, batches


def test_jobs_are_sorted_by_length_and_empty_ones_are_left_out():
    worker, batches = make_worker(batch_size=2)
    worker.submit(["a", "ccc", "", "bb", "dddd", "e"])
    worker.join()
    assert batches == [["dddd", "ccc"], ["bb", "a"], ["e"]]


def test_jobs_from_many_threads_share_batches():
    worker, batches = make_worker(batch_size=64)
    barrier = threading.Barrier(8)

    def submit() -> None:
        barrier.wait()
        worker.submit(["a"])

    threads = [threading.Thread(target=submit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    worker.join()
    assert sum(map(len, batches)) == 8 and len(batches) < 8


def test_who_came_first_is_not_overtaken():
    first_batch_runs, second_wave_is_there = threading.Event(), threading.Event()
    batches = []

    def answer(batch):
        batches.append(list(batch))
        first_batch_runs.set()
        second_wave_is_there.wait(10)

    worker = BatchWorker(len, answer, batch_size=1)
    worker.submit(["a", "bb"])
    first_batch_runs.wait(10)
    worker.submit(["cccc"])
    second_wave_is_there.set()
    worker.join()
    assert batches == [["bb"], ["a"], ["cccc"]]


def test_the_thread_ends_when_nothing_waits_and_starts_again():
    worker, batches = make_worker(batch_size=2)
    worker.join()
    for _ in range(3):
        worker.submit(["a"])
        worker.join()
    assert batches == [["a"]] * 3
