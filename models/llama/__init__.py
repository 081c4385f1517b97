"""Llama-layout language models (Llama, Qwen2, Qwen3, Qwen3-MoE): checkpoints, tokenizer, prompt, network, node."""
