"""Records of runs, checkpoints, summaries, measurements and studies on disk."""

from holdfast.lab.records._checkpoint import load_checkpoint, save_checkpoint
from holdfast.lab.records._documents import parse_json
from holdfast.lab.records._federated import FederatedRecord
from holdfast.lab.records._files import write_atomically
from holdfast.lab.records._measurement import (
    MEASUREMENT_SUFFIX,
    MeasurementRecord,
    read_measurement,
    write_measurement,
)
from holdfast.lab.records._reading import Record, is_record, read_record
from holdfast.lab.records._study import (
    STUDY_SUFFIX,
    Labels,
    Study,
    keep_study,
    read_study,
    write_study,
)
from holdfast.lab.records._summary import Summary
from holdfast.lab.records._writing import (
    METRICS_FILE,
    RUN_FILE,
    VERSION,
    Journal,
    config_hash,
    create_record,
    extend_record,
    machine,
    versions,
)

__all__ = [
    "MEASUREMENT_SUFFIX",
    "METRICS_FILE",
    "RUN_FILE",
    "STUDY_SUFFIX",
    "VERSION",
    "FederatedRecord",
    "Journal",
    "Labels",
    "MeasurementRecord",
    "Record",
    "Study",
    "Summary",
    "config_hash",
    "create_record",
    "extend_record",
    "is_record",
    "keep_study",
    "load_checkpoint",
    "machine",
    "parse_json",
    "read_measurement",
    "read_record",
    "read_study",
    "save_checkpoint",
    "versions",
    "write_atomically",
    "write_measurement",
    "write_study",
]
