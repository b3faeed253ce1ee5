"""What a workload will use once a pod that is created now is ready, so that pods can be created ahead of need."""
