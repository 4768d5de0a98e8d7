"""What a run leaves on disk: its record, append-only, and its checkpoint."""

from holdfast.records._checkpoint import load_checkpoint, save_checkpoint
from holdfast.records._machine import machine, versions
from holdfast.records._reading import Record, is_record, read_record
from holdfast.records._writing import METRICS_FILE, RUN_FILE, VERSION, Journal, config_hash, create_record

__all__ = [
    "METRICS_FILE",
    "RUN_FILE",
    "VERSION",
    "Journal",
    "Record",
    "config_hash",
    "create_record",
    "is_record",
    "load_checkpoint",
    "machine",
    "read_record",
    "save_checkpoint",
    "versions",
]
