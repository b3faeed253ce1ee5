"""The model of the workload: second moments of usage, their sum over nodes, and the directions of usage."""
