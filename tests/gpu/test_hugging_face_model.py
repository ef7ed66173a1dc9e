"""A Hugging Face folder on a GPU replies as it does on a CPU, as far as floating point allows."""

import pytest
import torch

from lib.language_models.hugging_face_model import HuggingFaceModel
from lib.llm.chat_model import ChatRequest
from tests.language_models.hugging_face_folders import make_parrot_folder, make_random_folder

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA device on this machine"
)


def make_requests() -> list[ChatRequest]:
    """Prompts, temperatures and limits that differ."""
    return [
        ChatRequest(
            [{"role": "user", "content": "x" * (5 * index)}],
            temperature=index % 2,
            seed=index,
            max_tokens=4 + index,
        )
        for index in range(16)
    ]


def test_replies_are_those_of_the_cpu_at_equal_precision(tmp_path):
    folder = make_random_folder(tmp_path / "random")
    on_cpu = HuggingFaceModel(folder, device="cpu").generate(make_requests())
    on_gpu = HuggingFaceModel(folder, device="cuda", dtype="float32").generate(make_requests())
    assert [reply.text for reply in on_gpu] == [reply.text for reply in on_cpu]


def test_a_gpu_is_chosen_by_itself_with_numbers_of_16_bits(tmp_path):
    model = HuggingFaceModel(make_parrot_folder(tmp_path / "parrot", ["One", " two"]))
    assert (model.net.device.type, model.net.dtype) == ("cuda", torch.bfloat16)
    replies = model.generate(make_requests())
    assert {reply.text for reply in replies if reply.finish_reason == "stop"} == {"One two"}


def test_a_batch_that_exceeds_the_memory_is_a_failure_with_the_remedy(tmp_path):
    model = HuggingFaceModel(make_parrot_folder(tmp_path / "parrot", ["One"]), device="cuda")

    def exhaust_memory(*_) -> None:
        torch.empty(2**50, dtype=torch.uint8, device="cuda")

    model.net.register_forward_pre_hook(exhaust_memory)
    [reply] = model.generate(make_requests()[:1])
    assert reply.failure.kind == "server_error"
    assert "use a smaller batch_size" in reply.failure.detail
