"""Classes of pods: what each takes, the mix of classes to come, and how many of each fit."""
