"""Measuring ourselves: ratios of things that ran side by side, because machines are noisy."""
