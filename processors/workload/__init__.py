"""Classes of pods: what each takes, the mix of classes that is expected, and how many of each fit."""
