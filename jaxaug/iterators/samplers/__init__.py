"""The orders of an epoch: functions from a position to a record."""
