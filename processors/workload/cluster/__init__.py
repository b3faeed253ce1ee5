"""What the nodes of a cluster say of classes together: sums of a partition, votes, and what is remembered of both."""
