"""Lab language models: small transformers that are trained here, generate in batches and are served.

`tokenizer` and `dialogue` say how text becomes tokens, `corpus` and `agent` what each model is taught,
`training` and `build` how, `forward` and `generation` how it writes, `answering` and `server` how it
is asked, `cards` and `probe` what it can do and what it knows.
"""
