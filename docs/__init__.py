"""The sources of the documentation: pages, and what fills them from the code and the README."""
