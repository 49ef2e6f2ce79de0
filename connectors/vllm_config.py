"""What a vLLM engine was configured with, in one line for a person."""

from __future__ import annotations

from typing import Any, Final

_FIELDS: Final = (
    ("model", "model_config.model"),
    ("dtype", "model_config.dtype"),
    ("quantization", "model_config.quantization"),
    ("max_model_len", "model_config.max_model_len"),
    ("enforce_eager", "model_config.enforce_eager"),
    ("tensor_parallel", "parallel_config.tensor_parallel_size"),
    ("pipeline_parallel", "parallel_config.pipeline_parallel_size"),
    ("data_parallel", "parallel_config.data_parallel_size"),
    ("expert_parallel", "parallel_config.enable_expert_parallel"),
    ("prefill_context_parallel", "parallel_config.prefill_context_parallel_size"),
    ("decode_context_parallel", "parallel_config.decode_context_parallel_size"),
    ("attention", "attention_config.backend"),
    ("kv_blocks", "cache_config.num_gpu_blocks"),
    ("block_size", "cache_config.block_size"),
    ("kv_dtype", "cache_config.cache_dtype"),
    ("prefix_caching", "cache_config.enable_prefix_caching"),
    ("max_num_seqs", "scheduler_config.max_num_seqs"),
    ("max_num_batched_tokens", "scheduler_config.max_num_batched_tokens"),
    ("chunked_prefill", "scheduler_config.enable_chunked_prefill"),
    ("scheduling", "scheduler_config.policy"),
    ("cudagraph", "compilation_config.cudagraph_mode"),
    ("speculative", "speculative_config.method"),
    ("lora", "lora_config.max_loras"),
    ("kv_transfer", "kv_transfer_config.kv_connector"),
)


def describe_config(vllm_config: Any, version: str, attention: str | None = None) -> str:
    """Return ``vLLM 0.32.0 model=... tensor_parallel=1 ...``; what is not set is left out.

    Args:
        vllm_config: vLLM's configuration.
        version: vLLM's version.
        attention: The attention backend that the environment asks for, as older versions take it.
    """
    words = [f"vLLM {version}"]
    for name, path in _FIELDS:
        value = vllm_config
        for part in path.split("."):
            value = getattr(value, part, None)
        if name == "attention" and value is None:
            value = attention
        if value is not None:
            words.append(f"{name}={_word(value)}")
    return " ".join(words)


def _word(value: object) -> str:
    """Return ``value`` as a word: of an enumeration its member's name, of a dtype the last part."""
    name = getattr(value, "name", None)
    return str(name if isinstance(name, str) else value).rpartition(".")[2] or str(value)
