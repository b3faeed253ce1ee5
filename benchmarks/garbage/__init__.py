"""What good nodes notice of one node that sends garbage."""
