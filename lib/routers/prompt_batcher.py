"""Prompts of many requests through one sentence encoder, in batches and beside the event loop.

A network takes about as long for eight short prompts as for four single ones, and an event loop must not wait for it.
While a batch is computed, in one thread, further prompts wait and are the next batch.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from lib.routers.prompt_encoder import PromptEncoder

MAX_BATCH = 32  # prompts that are encoded together


class PromptBatcher:
    """An encoder for the requests of one event loop.

    Attributes:
        encoder: Computes the vectors.
    """

    def __init__(self, encoder: PromptEncoder) -> None:
        """
        Args:
            encoder: Computes the vectors.
        """
        self.encoder = encoder
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="encoder")
        self._waiting: list[tuple[str, asyncio.Future[np.ndarray]]] = []
        self._task: asyncio.Task[None] | None = None

    async def encode(self, prompt: str) -> np.ndarray:
        """Encodes a prompt, (d,), in one batch with other prompts that are waiting."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((prompt, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._encode_waiting())
        return await future

    async def _encode_waiting(self) -> None:
        """Encodes batches until no prompt is waiting; an error is raised in every request of its batch."""
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch = self._waiting[:MAX_BATCH]
            del self._waiting[:MAX_BATCH]
            prompts = [prompt for prompt, _ in batch]
            try:
                vectors = await loop.run_in_executor(self._thread, self.encoder.encode, prompts)
            except Exception as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), vector in zip(batch, vectors, strict=True):
                # A client may be gone.
                if not future.done():
                    future.set_result(vector)

    def close(self) -> None:
        """Ends the thread after its current batch."""
        self._thread.shutdown(wait=False, cancel_futures=True)
