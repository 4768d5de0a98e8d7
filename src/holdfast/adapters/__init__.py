"""The rules for users of other libraries: `holdfast.adapters.torchjd`, `holdfast.adapters.byzfl`.

Importing this package imports neither library.
"""
