"""Checkpoints as files: their shards, headers, element types, identity, and the plan to read them.

Nothing here reads tensor data.
"""

from __future__ import annotations

from fxload.checkpoint.dtypes import DTYPES, DType, bits_of, storage_shape, torch_dtype
from fxload.checkpoint.header import Header, TensorInfo, header_size, parse_header
from fxload.checkpoint.identity import DigestMemory, model_digest
from fxload.checkpoint.plan import Extent, FileShape, ReadPlan, plan_tensors, plan_whole_files
from fxload.checkpoint.selection import Selection
from fxload.checkpoint.shards import ShardList, allowed_tensors, find_shards

__all__ = [
    "DTYPES",
    "DType",
    "DigestMemory",
    "Extent",
    "FileShape",
    "Header",
    "ReadPlan",
    "Selection",
    "ShardList",
    "TensorInfo",
    "allowed_tensors",
    "bits_of",
    "find_shards",
    "header_size",
    "model_digest",
    "parse_header",
    "plan_tensors",
    "plan_whole_files",
    "storage_shape",
    "torch_dtype",
]
