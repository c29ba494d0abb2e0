"""The paper's evidence, regenerated and judged: one module per experiment, one runner, one report.

Studies fit simulated and public data with fixed seeds: nothing here is private. `python -m reproduction run NAME`
fills a folder of results; `python -m reproduction report` sets them beside the printed figures.
"""
