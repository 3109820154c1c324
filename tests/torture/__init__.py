"""Campaigns that are longer than a test: ``make torture``; ``tests/test_torture.py`` has a shorter form of each."""
