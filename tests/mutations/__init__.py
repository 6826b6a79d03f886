"""Planted defects by the hundred: how many of them the suite finds."""
