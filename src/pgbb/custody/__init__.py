"""What the custodian of the records needs: a fit under a ledger, the ledger itself, checkpoints of long fits."""
