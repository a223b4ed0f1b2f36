"""Masks: compiled from named parts with a record of how, positions, and policies for rows that see no key."""
