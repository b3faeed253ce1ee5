"""The scheduler extender: answers kube-scheduler from memory, and never gives one place to two pods."""
