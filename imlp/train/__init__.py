"""One run: its settings, data, schedule, lanes, loop and folder.

The loop computes through the verbs of a backend (`imlp.backend`). Only `export`, whose networks are torch modules,
and `callbacks`, for TensorBoard, import torch, and only when they are asked to.
"""
