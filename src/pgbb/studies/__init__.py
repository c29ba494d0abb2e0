"""The paper's evidence, regenerated and judged: one module per experiment, one runner, one report.

Studies fit simulated and public data with fixed seeds: nothing here is private. `pgbb study run NAME` fills a folder
of results; `pgbb study report` sets them beside the printed figures.
"""
