"""The ``fxload`` command."""
