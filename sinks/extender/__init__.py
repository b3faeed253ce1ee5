"""The scheduler extender: answers kube-scheduler from memory, and never reserves the same room twice."""
