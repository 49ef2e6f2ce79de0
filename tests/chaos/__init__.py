"""Faults at seeded moments, and after each of them: has every output been said, once, the same?"""
