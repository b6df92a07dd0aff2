"""Compiled kernels: plain C loops behind thin Cython wrappers.

They trust their input: contiguous arrays of the stated type and shape, checked at the public edge
(`randsmap._interface.validation`). Nothing here is public API.
"""
