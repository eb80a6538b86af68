"""The rules: functions from values to values, with no clock, disk, network, loop, log or randomness."""
