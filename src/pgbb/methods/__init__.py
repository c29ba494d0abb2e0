"""Other ways to private uncertainty, behind `pgbb.fit(…, method=…)`.

A method is a function from (model, data, schema, budget) to a `Release` whose
payload is draws. Records are read by `pgbb.private` alone.
"""
