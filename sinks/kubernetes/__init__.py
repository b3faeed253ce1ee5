"""What spazio writes to Kubernetes: Mid-tier resources and marks of nodes, NodeMetrics, and floors of autoscalers."""
