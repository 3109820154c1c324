"""What patchkit costs, beside what people use now: ``make bench``, ``make bench-growth``."""
