"""One module a verb of the command line, each loaded when it is asked for."""
