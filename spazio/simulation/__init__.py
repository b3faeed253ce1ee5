"""A cluster in virtual time, to compare schedulers: pods share processors, and each scheduler sees what it would see.

`scenario` reads what is simulated, `cluster` has the physics, `telemetry` makes messages of them, `schedulers` choose
nodes, `engine` runs one scheduler with one seed, `outcome` measures a run and sums runs up, `compare` is the command.
"""
