"""The engine: one worker that owns vLLM (or a scripted stand-in), and the messages in and out of it."""
