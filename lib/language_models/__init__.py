"""Language models that answer in this process: those of the lab, which are trained here, and Hugging Face folders.

`tokenizer` and `chat_template` say how text becomes a lab model's tokens, `kv_cache_forward` and `generation` how it
writes; `lab_model` and `hugging_face_model` are the chat models that systems ask, `local_models` opens them by name.
`training` holds what each lab model is taught, how, what it can do (`model_cards`) and what it knows
(`linear_probes`); `serving` answers OpenAI clients.
"""
