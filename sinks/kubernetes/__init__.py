"""What spazio writes to Kubernetes: Mid-tier resources of nodes, NodeMetric objects, and floors of autoscalers."""
