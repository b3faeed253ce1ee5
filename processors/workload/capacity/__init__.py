"""How many more pods fit: by the resources that a pod takes, and by the disks that it waits for."""
