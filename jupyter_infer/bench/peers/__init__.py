"""Ourselves beside the engines that people use otherwise: one process each, in turn, the same tokens for all."""
