"""The calibrated method: few full-batch answers, asked where they tell most, and a posterior that knows their noise.

`plan` says what is asked, `statistics` what a record contributes, `location`,
`quantile` and `smooth` ask, and `estimate` is what remains. Derived in docs/calibration.md.
"""
