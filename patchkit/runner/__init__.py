"""Start the patched server, watch it, prove it, and end it with everything that it started."""
