"""`spazio govern`: limits Mid and Batch pods of this node by their cgroups, from what is free now."""
