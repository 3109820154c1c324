"""Patch the installed source of vLLM and speculators, and prove it."""
