"""Where sums over records run: this process, or the workers of a cluster that somebody else has written.

An engine knows how work is sent out and comes back, and nothing of statistics, noise or budgets. It reads no record:
what a worker does with its partition is in `pgbb.private.worker`.
"""
