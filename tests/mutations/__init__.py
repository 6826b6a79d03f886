"""Mutation tests: the share of hundreds of planted defects that the suite finds."""
