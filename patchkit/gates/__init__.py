"""What vLLM will say to a model and a drafter, read from its installed source before anything is loaded."""
