"""Two CPU processes that talk by gloo, as torchrun would start them."""

import multiprocessing
import os
import socket
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState


def join_group(rank: int, port: int) -> Accelerator:
    torch.set_num_threads(1)
    os.environ |= {
        "ACCELERATE_USE_CPU": "true",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "OMP_NUM_THREADS": "1",
    }
    AcceleratorState._reset_state(reset_partial_state=True)
    return Accelerator(cpu=True)


def run_in_two_processes(work, folder: Path, timeout: float = 100) -> list:
    """Run work(rank, accelerator), which returns what `torch.save` can write, in two processes at once."""
    with socket.socket() as free_socket:
        free_socket.bind(("127.0.0.1", 0))
        port = free_socket.getsockname()[1]

    def run(rank: int) -> None:
        try:
            result = work(rank, join_group(rank, port))
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
        torch.save(result, folder / f"{rank}.pt")
        os._exit(0)  # nothing of the test run that was copied is to be tidied up twice

    context = multiprocessing.get_context("fork")  # what is imported is imported
    processes = [context.Process(target=run, args=(rank,), daemon=True) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout)
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]
