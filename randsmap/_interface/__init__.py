"""The public edge: arrays, fields and parameters are checked here, once; declared state of fitted objects."""
