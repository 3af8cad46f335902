"""A host made ready for low tails: audited, tuned, put back.

`audit` judges the knobs of `tailtap.host.knobs` on a machine for a purpose; `plan` says what
would set those that are not met; `apply` does so as one transaction, and `revert` undoes it.
"""
