"""Lab language models: small transformers that are trained here, generate in batches and are served.

`tokenizer` and `chat_template` say how text becomes tokens, `kv_cache_forward` and `generation` how a model writes,
`in_process_client` how it is asked without a server. `training` holds what each model is taught, how, what it can do
(`model_cards`) and what it knows (`linear_probes`); `serving` answers OpenAI clients.
"""
