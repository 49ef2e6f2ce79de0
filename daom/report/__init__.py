"""The report of a replay: what was said of a source, and what other settings would have said.

``contest`` folds a source for several settings at once, ``said`` keeps what each of them says,
``timeline`` the course of each stream, both in bounded memory; ``document`` makes one plain object
of it, which is the JSON report, and ``page`` puts that object into one HTML file.
"""
