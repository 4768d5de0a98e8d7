"""Rules for other libraries: `holdfast.adapters.torchjd` and `holdfast.adapters.byzfl`.

Importing this package imports neither library.
"""
