"""Reports as other programs read them, a module a format; each has ``write``."""
