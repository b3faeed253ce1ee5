"""The scores of kube-scheduler's NodeResources plugins, in its own integer arithmetic."""
