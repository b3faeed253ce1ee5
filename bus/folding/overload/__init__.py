"""What a processor leaves out when its machine cannot keep up."""
